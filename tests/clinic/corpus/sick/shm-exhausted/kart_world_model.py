# cause: shm-exhausted
# also: prefetch-memory
# limits: shm=64M
"""World model for a toy karting game. Episodes live in a replay ring that the actors and the learner share."""
import os
import sys
from multiprocessing import shared_memory

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

FRAME = (3, 48, 48)
RING = 6000
SEQ = 8


class ReplayRing:
    def __init__(self, capacity):
        self.block = shared_memory.SharedMemory(create=True, size=capacity * int(np.prod(FRAME)))
        self.frames = np.ndarray((capacity, *FRAME), np.uint8, buffer=self.block.buf)
        self.actions = np.zeros((capacity, 2), np.float32)

    def fill(self, rng):
        n = len(self.frames)
        xs = np.cumsum(rng.normal(0, 0.6, n)) % 48
        track = (np.indices((48, 48)).sum(0) * 3).astype(np.uint8)
        for t in range(n):
            self.frames[t, 0] = np.roll(track, t % 48, axis=0)
            self.frames[t, 1] = np.roll(track, int(xs[t]), axis=1)
            self.frames[t, 2, :, int(xs[t])] = 255
        self.actions[:, 0] = np.gradient(xs)
        self.actions[:, 1] = 1.0

    def close(self):
        self.frames = None
        self.block.close()
        self.block.unlink()


class Rollouts(Dataset):
    def __init__(self, ring):
        self.ring = ring

    def __len__(self):
        return RING - SEQ - 1

    def __getitems__(self, starts):
        out = []
        for s in starts:
            clip = torch.from_numpy(self.ring.frames[s:s + SEQ + 1].astype(np.float32)) / 255
            clip = clip + 0.01 * torch.randn_like(clip)
            act = torch.from_numpy(self.ring.actions[s:s + SEQ].copy())
            out.append((F.avg_pool2d(clip, 2).clamp(0, 1), act))
        return out


class WorldModel(nn.Module):
    def __init__(self, z=64):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(),
                                 nn.Flatten(), nn.Linear(32 * 36, z))
        self.rnn = nn.GRU(z + 2, z, batch_first=True)
        self.pred = nn.Linear(z, z)

    def forward(self, clip, act):
        b, t = clip.shape[:2]
        z = self.enc(clip.flatten(0, 1)).view(b, t, -1)
        h, _ = self.rnn(torch.cat([z[:, :-1], act], -1))
        return F.mse_loss(self.pred(h), z[:, 1:].detach()) - 0.01 * z.std(0).mean()


def make_loader(ring):
    order = RandomSampler(range(RING - SEQ - 1), replacement=True, num_samples=48 * 40)
    return DataLoader(Rollouts(ring), batch_size=48, sampler=order,
                      num_workers=2, prefetch_factor=8, persistent_workers=True)


def main(epochs):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ring = ReplayRing(RING)
    ring.fill(np.random.default_rng(0))
    model = WorldModel()
    opt = torch.optim.RMSprop(model.parameters(), lr=2e-4)
    loader = make_loader(ring)
    try:
        for epoch in range(epochs):
            seen = 0.0
            for clip, act in loader:
                loss = model(clip, act)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                seen += loss.item()
            print(f"[{os.getpid()}] epoch {epoch} loss {seen / len(loader):.5f}", flush=True)
    finally:
        ring.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
