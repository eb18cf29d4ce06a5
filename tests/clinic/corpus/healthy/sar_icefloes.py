# limits: shm=64M
"""Ice-floe segmentation on SAR amplitude tiles; tiles travel as bytes and are scaled on arrival."""
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TILE = 192


class Tiles(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed
        self.fx = np.fft.fftfreq(TILE)[:, None] ** 2 + np.fft.fftfreq(TILE)[None] ** 2

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        field = np.fft.ifft2(np.fft.fft2(rng.normal(size=(TILE, TILE))) * np.exp(-self.fx * 900)).real
        ice = field > 0.2 * field.std()
        looks = rng.gamma(4, 0.25, (3, TILE, TILE))       # speckle, three acquisitions
        amp = np.sqrt(looks * np.where(ice, 1.0, 0.25))
        return {"amp": torch.from_numpy((amp / 3 * 255).clip(0, 255).astype(np.uint8)),
                "ice": torch.from_numpy(ice.astype(np.uint8)), "tile": i}


def stack_tiles(samples):
    return torch.stack([s["amp"] for s in samples]), torch.stack([s["ice"] for s in samples])


class SegNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.a = nn.Conv2d(3, w, 5, stride=4, padding=2)
        self.b = nn.Conv2d(w, w, 3, padding=1)
        self.c = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        return F.interpolate(self.c(F.relu(self.b(F.relu(self.a(x))))), scale_factor=4)


def iou(logit, y):
    p = logit > 0
    return float((p & y).sum() / (p | y).sum().clamp(min=1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tiles", type=int, default=480)
    ap.add_argument("--batch", type=int, default=12)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    common = dict(batch_size=args.batch, num_workers=args.workers, collate_fn=stack_tiles, persistent_workers=True)
    train = DataLoader(Tiles(args.tiles, 1), shuffle=True, drop_last=True, **common)
    val = DataLoader(Tiles(args.tiles // 4, 2), **common)
    net = SegNet()
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    for epoch in range(3):
        for amp, ice in train:
            logit = net(amp.float() / 255).squeeze(1)
            loss = F.binary_cross_entropy_with_logits(logit, ice.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            score = np.mean([iou(net(a.float() / 255).squeeze(1), y.bool()) for a, y in val])
        print(f"epoch {epoch} loss {loss.item():.3f} val iou {score:.3f}", flush=True)


if __name__ == "__main__":
    main()
