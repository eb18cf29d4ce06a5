"""Streaming infrasound detector: volumes are dealt out to ranks first and to loader workers second."""
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

VOLUMES, EACH, LEN = 12, 60, 4096


def record(root):
    rng = np.random.default_rng(3)
    for v in range(VOLUMES):
        y = rng.integers(0, 2, EACH)
        x = rng.normal(0, 1, (EACH, LEN)).astype(np.float32)
        x[y == 1, 1000:1400] += 2 * np.sin(np.arange(400) / 9.0)
        np.savez(root / f"{v:02d}.npz", x=x, y=y)


class Stream(IterableDataset):
    def __init__(self, root):
        self.paths = sorted(root.glob("*.npz"))
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

    def mine(self):
        info = get_worker_info()
        wid, n = (info.id, info.num_workers) if info else (0, 1)
        return self.paths[self.rank * n + wid::self.world * n]

    def features(self, w):
        frames = np.lib.stride_tricks.sliding_window_view(w, 256)[::16] * np.hanning(256)
        power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
        return np.log(power[:, :64] + 1e-3).T.astype(np.float32)

    def __iter__(self):
        for p in self.mine():
            with np.load(p) as z:
                xs, ys = z["x"], z["y"]
            for k in torch.randperm(len(ys)).tolist():
                yield torch.from_numpy(self.features(xs[k])), float(ys[k])


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm1d(64), nn.Conv1d(64, 16, 5, stride=2), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def cycle(loader):
    while True:
        yield from loader


def main(steps=135, report=45):
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        record(root)
        loader = DataLoader(Stream(root), batch_size=24, num_workers=2, persistent_workers=True)
        model = Detector()
        opt = torch.optim.Adam(model.parameters(), 1e-3)
        run, feed = 0.0, cycle(loader)
        for step in range(1, steps + 1):
            x, y = next(feed)
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            run += loss.item()
            if step % report == 0:
                print(f"step {step} loss {run / report:.4f}", flush=True)
                run = 0.0
        feed.close()


if __name__ == "__main__":
    main()
