# cause: handle-shared-across-fork
"""Cell-stage classification in embryo z-stacks (multi-page tiff, one page per depth)."""
import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


class Stack:
    """A tiff with many pages and the stage of every page."""

    def __init__(self, path):
        self.image = Image.open(path)
        self.stages = np.loadtxt(path.with_suffix(".txt"), dtype=int)
        self.pages = self.image.n_frames

    def page(self, k):
        self.image.seek(k)
        return np.asarray(self.image, np.uint8)

    def slab(self, k):
        """The page with the one above and the one below it."""
        return np.stack([self.page(min(max(j, 0), self.pages - 1)) for j in (k - 1, k, k + 1)])

    @staticmethod
    def write(path, pages, side, rng):
        stages = rng.integers(0, 4, pages)
        frames = []
        for s in stages:
            px = rng.integers(0, 40, (side, side), dtype=np.uint8)
            for c in range(2 ** s):
                y, x = divmod(c * 37, side - 24)
                px[y % (side - 24):y % (side - 24) + 20, x:x + 20] += 180
            frames.append(Image.fromarray(px))
        frames[0].save(path, save_all=True, append_images=frames[1:], compression="tiff_adobe_deflate")
        np.savetxt(path.with_suffix(".txt"), stages, fmt="%d")


class StackPages(Dataset):
    def __init__(self, stack, crop):
        self.stack, self.crop = stack, crop

    def __len__(self):
        return self.stack.pages

    def __getitem__(self, k):
        slab = torch.from_numpy(self.stack.slab(k).astype(np.float32) / 255)
        top, left = (int(v) for v in torch.randint(0, slab.shape[1] - self.crop, (2,)))
        return slab[:, top:top + self.crop, left:left + self.crop].clone(), int(self.stack.stages[k])


class StageNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 5, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        h = self.stem(x)
        return self.head(torch.cat([h.mean((2, 3)), h.amax((2, 3))], 1))


class History:
    def __init__(self):
        self.rows = []

    def add(self, **row):
        self.rows.append(row)
        print("  ".join(f"{k} {v:.4g}" for k, v in row.items()), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--stacks", type=int, default=1)
    p.add_argument("--pages", type=int, default=120)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--crop", type=int, default=160)
    args = p.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        rng = np.random.default_rng(0)
        for i in range(args.stacks):
            Stack.write(Path(tmp) / f"embryo{i}.tif", args.pages, 224, rng)
        data = ConcatDataset([StackPages(Stack(f), args.crop) for f in sorted(Path(tmp).glob("*.tif"))])
        loader = DataLoader(data, 8, shuffle=True, num_workers=args.workers, persistent_workers=True)
        model, history = StageNet(), History()
        opt = torch.optim.AdamW(model.parameters(), 3e-3)
        for epoch in range(args.epochs):
            losses = []
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
            history.add(epoch=epoch, loss=float(np.mean(losses)))


if __name__ == "__main__":
    main()
