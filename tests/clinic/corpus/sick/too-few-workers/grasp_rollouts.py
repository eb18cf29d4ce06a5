# cause: too-few-workers
"""Learn to predict grasp success from short force/position traces of a gripper controller.

The controller emulator is the one the lab uses on the bench: it keeps its own clock,
so a trace of N control periods takes N control periods.
"""
import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class GripperController:
    """Fixed-rate PD controller closing two fingers on a compliant object."""

    def __init__(self, rate_hz=500.0, kp=40.0, kd=1.6):
        self.period = 1.0 / rate_hz
        self.kp, self.kd = kp, kd

    def close_on(self, width, stiffness, ticks=5):
        pos, vel = 0.08, 0.0
        deadline = time.monotonic()
        trace = []
        for _ in range(ticks):
            for _ in range(8):  # inner integration steps per control period
                contact = max(0.0, width - pos) * stiffness
                force = self.kp * (0.01 - pos) - self.kd * vel + contact
                vel += force * self.period
                pos += vel * self.period
                trace.append((pos, vel, force, contact))
            deadline += self.period
            time.sleep(max(0.0, deadline - time.monotonic()))
        return np.asarray(trace, dtype=np.float32)


class GraspRollouts(Dataset):
    def __init__(self, n_objects, seed=0):
        rng = np.random.default_rng(seed)
        self.widths = rng.uniform(0.02, 0.07, n_objects)
        self.stiffness = rng.uniform(50, 900, n_objects)
        self.controller = GripperController()

    def __len__(self):
        return len(self.widths)

    def __getitem__(self, i):
        w, k = float(self.widths[i]), float(self.stiffness[i])
        trace = self.controller.close_on(w, k)
        label = 1.0 if k * w > 14.0 else 0.0
        return {"trace": torch.from_numpy(trace), "held": torch.tensor(label)}


class TraceClassifier(nn.Module):
    def __init__(self, channels=4, hidden=32):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.conv = nn.Sequential(
            nn.Conv1d(channels, hidden, 5, padding=2), nn.ReLU(),
            nn.Conv1d(hidden, hidden, 5, padding=2, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
        )
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.conv(self.norm(x.transpose(1, 2)))
        return self.head(h.squeeze(-1)).squeeze(-1)


def make_loaders(args):
    full = GraspRollouts(args.objects, seed=args.seed)
    split = int(0.9 * len(full))
    train = Subset(full, range(split))
    held_out = [full[i] for i in range(split, len(full))]  # small, kept in memory
    train_loader = DataLoader(train, batch_size=args.batch_size, shuffle=True,
                              num_workers=args.workers, persistent_workers=args.workers > 0,
                              drop_last=True)
    return train_loader, held_out


@torch.no_grad()
def accuracy(model, held_out):
    model.eval()
    x = torch.stack([s["trace"] for s in held_out])
    y = torch.stack([s["held"] for s in held_out])
    acc = ((model(x) > 0).float() == y).float().mean().item()
    model.train()
    return acc


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--objects", type=int, default=600)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--batch-size", type=int, default=12)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=7)
    args = p.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # tiny model
    train_loader, held_out = make_loaders(args)
    model = TraceClassifier()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda e: 0.5 * (1 + math.cos(math.pi * e / args.epochs)))
    loss_fn = nn.BCEWithLogitsLoss()

    for epoch in range(args.epochs):
        t0, total = time.time(), 0.0
        for batch in train_loader:
            opt.zero_grad(set_to_none=True)
            loss = loss_fn(model(batch["trace"]), batch["held"])
            loss.backward()
            opt.step()
            total += loss.item()
        sched.step()
        print(f"epoch {epoch} loss {total / len(train_loader):.4f} "
              f"acc {accuracy(model, held_out):.3f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
