# cause: large-python-objects
# also: workers-not-worth-it
"""Energy regression from calorimeter showers. Hits travel along with each batch for the event display."""
import dataclasses
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Options:
    events: int = 1536
    hits: int = 3000
    batch_size: int = 32
    epochs: int = 3
    workers: int = 2
    show_every: int = 20


@dataclasses.dataclass
class Hit:
    x: float
    y: float
    z: float
    energy: float


class ShowerFile:
    """Packed hits of all events (stands in for the memory-mapped ROOT export)."""

    def __init__(self, opt):
        rng = np.random.default_rng(17)
        self.base = rng.normal(size=(64, opt.hits, 4)).astype(np.float32)
        self.scale = rng.uniform(0.5, 2.0, opt.events).astype(np.float32)

    def read(self, i):
        return self.base[i % 64] * self.scale[i]


class Showers(Dataset):
    def __init__(self, opt, source):
        self.opt, self.source = opt, source

    def __len__(self):
        return self.opt.events

    def voxelise(self, hits):
        hist, _ = np.histogram(hits[:, 2], bins=32, range=(-4, 4), weights=hits[:, 3] ** 2)
        return torch.from_numpy(hist.astype(np.float32))

    def __getitem__(self, i):
        hits = self.source.read(i)
        return {
            "profile": self.voxelise(hits),
            "energy": torch.tensor(float(self.source.scale[i])),
            "hits": [Hit(*row) for row in hits.tolist()],
            "event": i,
        }


class EventCollate:
    stacked = ("profile", "energy")

    def __call__(self, events):
        batch = {k: torch.stack([e[k] for e in events]) for k in self.stacked}
        for k in events[0]:
            if k not in self.stacked:
                batch[k] = [e[k] for e in events]
        return batch


class EventDisplay:
    def __init__(self, every):
        self.every = every

    def __call__(self, step, batch):
        if step % self.every == 0:
            hardest = max(batch["hits"][0], key=lambda h: h.energy)
            print(f"    event {batch['event'][0]}: hardest hit {hardest.energy:.2f} at z={hardest.z:.2f}", flush=True)


def main(opt):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(Showers(opt, ShowerFile(opt)), opt.batch_size, shuffle=True, num_workers=opt.workers, collate_fn=EventCollate(), persistent_workers=True)
    net = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 1))
    optim = torch.optim.Adam(net.parameters(), 1e-3)
    sched = torch.optim.lr_scheduler.StepLR(optim, 1, 0.7)
    display = EventDisplay(opt.show_every)
    for epoch in range(opt.epochs):
        t0, running = time.time(), 0.0
        for step, batch in enumerate(loader):
            loss = nn.functional.mse_loss(net(batch["profile"].log1p()).squeeze(1), batch["energy"])
            optim.zero_grad()
            loss.backward()
            optim.step()
            running += loss.item()
            display(step, batch)
        sched.step()
        print(f"epoch {epoch} mse {running / len(loader):.4f} {len(loader) / (time.time() - t0):.2f} batches/s", flush=True)


if __name__ == "__main__":
    main(Options())
