# cause: per-worker-cache
"""Land cover classification from big satellite scenes, a few crops per scene and step."""
import argparse
import functools
import io
import pathlib
import shutil
import tempfile

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def prepare(folder, scenes, side):
    rng = np.random.default_rng(11)
    for i in range(scenes):
        coarse = rng.integers(0, 255, (side // 64, side // 64, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((side, side), Image.BILINEAR).save(folder / f"scene_{i:03d}.jpg", quality=85)


@functools.lru_cache(maxsize=None)
def load_scene(path):
    img = Image.open(io.BytesIO(pathlib.Path(path).read_bytes())).convert("RGB")
    return np.asarray(img, dtype=np.float32) / 255.0


def crop(scene, size, rng):
    y, x = rng.integers(0, scene.shape[0] - size, 2)
    return scene[y:y + size, x:x + size]


class Crops(Dataset):
    def __init__(self, folder, size, per_scene):
        self.paths = [str(p) for p in sorted(folder.glob("*.jpg"))]
        self.size, self.per_scene = size, per_scene
        self.round = 0

    def __len__(self):
        return len(self.paths) * self.per_scene

    def __getitem__(self, i):
        rng = np.random.default_rng((i, int(torch.randint(0, 2 ** 31, ()))))
        c = crop(load_scene(self.paths[i % len(self.paths)]), self.size, rng)
        if rng.random() < 0.5:
            c = c[:, ::-1]
        label = int(c.mean(axis=(0, 1)).argmax())
        return torch.from_numpy(np.ascontiguousarray(c.transpose(2, 0, 1))), label


def build_model():
    return nn.Sequential(nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 32, 3, stride=2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 3))


def main(argv=None):
    p = argparse.ArgumentParser()
    p.add_argument("--scenes", type=int, default=32)
    p.add_argument("--side", type=int, default=768)
    p.add_argument("--crop", type=int, default=48)
    p.add_argument("--per-scene", type=int, default=16)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args(argv)
    torch.set_num_threads(1)
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        prepare(folder, a.scenes, a.side)
        loader = DataLoader(Crops(folder, a.crop, a.per_scene), batch_size=32, shuffle=True, num_workers=a.workers, persistent_workers=True)
        model = build_model()
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, a.epochs * len(loader))
        for epoch in range(a.epochs):
            right = seen = 0
            for x, y in loader:
                out = model(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                sched.step()
                right += int((out.argmax(1) == y).sum())
                seen += len(y)
            print(f"epoch {epoch} accuracy {right / seen:.3f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
