# cause: workers-restarted
"""Moth wing-beat identification, trained by step count rather than by epoch."""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 8000


def record(root, clips):
    rng = np.random.default_rng(0)
    side = []
    with open(root / "beats.i16", "wb") as f:
        for c in range(clips):
            t = np.arange(RATE // 4) / RATE
            wave = np.sin(2 * np.pi * (40 + 15 * (c % 4)) * t) + 0.3 * rng.standard_normal(len(t))
            side.append({"at": f.tell(), "n": len(t), "species": c % 4, "notes": {"peaks": wave[::2].round(4).tolist()}})
            f.write((wave * 8000).astype("<i2").tobytes())
    (root / "beats.json").write_text(json.dumps(side))


class Recordings:
    """The sidecar is read and the waveform file opened by whoever needs it first."""

    def __init__(self, root):
        self.root, self.open_ = Path(root), None

    def clip(self, i):
        if self.open_ is None:
            side = json.loads((self.root / "beats.json").read_text())
            loudness = [np.abs(np.array(s["notes"]["peaks"])).max() for s in side]
            self.open_ = side, loudness, np.memmap(self.root / "beats.i16", "<i2", "r")
        side, loudness, wave = self.open_
        s = side[i]
        return np.array(wave[s["at"] // 2:s["at"] // 2 + s["n"]], np.float32) / 8000 / loudness[i], s["species"]


class Moths(Dataset):
    def __init__(self, root, ids):
        self.rec, self.ids = Recordings(root), ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        wave, species = self.rec.clip(self.ids[i])
        wave = np.roll(wave, np.random.randint(len(wave)))
        frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::64] * np.hanning(256)
        return torch.from_numpy(np.log1p(np.abs(np.fft.rfft(frames))).astype(np.float32)), species


def forever(loader):
    while True:
        yield from loader


class Trainer:
    def __init__(self, net, lr):
        self.net, self.opt = net, torch.optim.Adam(net.parameters(), lr)

    def step(self, batch):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=220)
    p.add_argument("--clips", type=int, default=160)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        record(Path(d), a.clips)
        loader = DataLoader(Moths(d, list(range(a.clips))), a.batch, shuffle=True, num_workers=a.workers)
        net = nn.Sequential(nn.Flatten(), nn.LazyLinear(32), nn.ReLU(), nn.Linear(32, 4))
        net(torch.zeros(1, 28, 129))
        trainer, source, began = Trainer(net, 1e-3), forever(loader), time.time()
        for step in range(1, a.steps + 1):
            loss = trainer.step(next(source))
            if step % 20 == 0:
                print(f"step {step} loss {loss:.3f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
