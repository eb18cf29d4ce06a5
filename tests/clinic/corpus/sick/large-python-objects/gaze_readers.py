# cause: large-python-objects
"""Reading-skill estimation from eye-tracker sessions."""
import argparse
import atexit
import shutil
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROW = struct.Struct("<fffff")


@dataclass
class Fixation:
    x: float
    y: float
    start: float
    length: float
    pupil: float


@dataclass
class Session:
    reader: str
    skill: float
    fixations: list


def write_session(path, rng, rows):
    speed = rng.uniform(0.5, 2.0)
    table = np.empty((rows, 5), dtype="<f4")
    table[:, 0] = np.cumsum(rng.exponential(speed, rows)) % 100
    table[:, 1] = np.arange(rows) // 40
    table[:, 3] = rng.gamma(2.0, 0.1 / speed, rows)
    table[:, 2] = np.cumsum(table[:, 3])
    table[:, 4] = rng.normal(3, 0.2, rows)
    path.write_bytes(struct.pack("<f", speed) + table.tobytes())


class Recordings(Dataset):
    """Sessions on disk; the first and last rows are calibration and are dropped."""

    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.gaze"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        raw = self.paths[i].read_bytes()
        (skill,) = struct.unpack_from("<f", raw)
        rows = [Fixation(*row) for row in ROW.iter_unpack(raw[4:])]
        return Session(self.paths[i].stem, skill, rows[20:-20])


class Sessions:
    """The sessions of a batch in alphabetical order."""

    def __init__(self, items):
        self.items = sorted(items, key=lambda s: s.reader)

    def skills(self):
        return torch.tensor([s.skill for s in self.items])

    def features(self, bins):
        rows = []
        for s in self.items:
            lengths = np.fromiter((f.length for f in s.fixations), dtype=np.float32, count=len(s.fixations))
            rows.append(np.histogram(lengths, bins=bins, range=(0, 1))[0] / len(lengths))
        return torch.from_numpy(np.stack(rows).astype(np.float32))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--readers", type=int, default=160)
    p.add_argument("--rows", type=int, default=12_000)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--bins", type=int, default=48)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="gaze"))
    atexit.register(shutil.rmtree, folder, True)
    rng = np.random.default_rng(8)
    for r in range(args.readers):
        write_session(folder / f"reader{r:03d}.gaze", rng, args.rows)
    loader = DataLoader(Recordings(folder), args.batch, shuffle=True, num_workers=2, collate_fn=Sessions)
    net = nn.Sequential(nn.Linear(args.bins, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    began = time.time()
    for step, sessions in enumerate(loader):
        loss = nn.functional.mse_loss(net(sessions.features(args.bins)).squeeze(1), sessions.skills())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f} {time.time() - began:.1f}s", flush=True)
    print(f"pass finished after {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
