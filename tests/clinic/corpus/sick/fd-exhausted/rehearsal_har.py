# cause: fd-exhausted
# also: iterable-not-sharded
# limits: nofile=256
"""Activity recognition from body-worn sensors, tasks arrive one after another; past windows are rehearsed."""
import argparse
import json
import random
import tempfile
from collections import deque
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

FIELDS = ("accel", "gyro", "quat", "subject", "label")


def record_sessions(root, tasks, per_task):
    """One folder per task, one json header and one npz per session."""
    rng = np.random.default_rng(11)
    for task in range(tasks):
        folder = root / f"task{task}"
        folder.mkdir()
        for s in range(per_task):
            n = 16
            label = rng.integers(0, 2, n) + 2 * task
            accel = rng.normal(size=(n, 3, 64)) + label[:, None, None] * 0.3
            np.savez_compressed(folder / f"s{s:03d}.npz", accel=accel.astype(np.float32),
                                gyro=rng.normal(size=(n, 3, 64)).astype(np.float32),
                                quat=rng.normal(size=(n, 4)).astype(np.float32), label=label)
            (folder / f"s{s:03d}.json").write_text(json.dumps({"subject": int(rng.integers(0, 9)), "windows": n}))


class SessionStream(IterableDataset):
    def __init__(self, folder):
        super().__init__()
        self.sessions = sorted(Path(folder).glob("*.npz"))

    @staticmethod
    def _smooth(x):
        kernel = np.hanning(9) / np.hanning(9).sum()
        return np.stack([np.convolve(c, kernel, "same") for c in x]).astype(np.float32)

    def __iter__(self):
        for path in self.sessions:
            header = json.loads(path.with_suffix(".json").read_text())
            with np.load(path) as z:
                columns = {k: z[k] for k in z.files}
            for i in range(header["windows"]):
                yield {"accel": self._smooth(columns["accel"][i]), "gyro": self._smooth(columns["gyro"][i]),
                       "quat": columns["quat"][i], "subject": header["subject"], "label": int(columns["label"][i])}


class Rehearsal:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def observe(self, batch):
        self.memory.append({k: batch[k] for k in FIELDS})

    def draw(self):
        return random.choice(self.memory) if self.memory else None


class Encoder(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(6, 24, 5, stride=2), nn.ReLU(), nn.Conv1d(24, 32, 5, stride=2), nn.ReLU(),
                                  nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.head = nn.Linear(36, classes)

    def forward(self, b):
        h = self.conv(torch.cat([b["accel"], b["gyro"]], 1))
        return self.head(torch.cat([h, b["quat"]], 1))


class Learner:
    def __init__(self, args):
        self.args = args
        self.model = Encoder(2 * args.tasks)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9)
        self.rehearsal = Rehearsal(args.capacity)

    def step(self, batch):
        loss = nn.functional.cross_entropy(self.model(batch), batch["label"])
        past = self.rehearsal.draw()
        if past is not None:
            loss = loss + 0.5 * nn.functional.cross_entropy(self.model(past), past["label"])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def fit_task(self, task, folder):
        loader = DataLoader(SessionStream(folder), batch_size=self.args.batch, num_workers=self.args.workers)
        seen, total = 0, 0.0
        for batch in loader:
            total += self.step(batch)
            self.rehearsal.observe(batch)
            seen += len(batch["label"])
        print(f"task {task}: {seen} windows, loss {total * self.args.batch / max(seen, 1):.4f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tasks", type=int, default=4)
    p.add_argument("--sessions", type=int, default=14)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--capacity", type=int, default=500)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--lr", type=float, default=0.02)
    args = p.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        record_sessions(Path(tmp), args.tasks, args.sessions)
        learner = Learner(args)
        for task in range(args.tasks):
            learner.fit_task(task, Path(tmp) / f"task{task}")


if __name__ == "__main__":
    main()
