# cause: view-of-large-storage
# also: shm-exhausted
# limits: shm=64M
"""Sleep staging from overnight recordings (30 s pages cut from long signals)."""
import argparse

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


class Night(Dataset):
    """One night of one subject, resampled to 64 Hz, three channels."""

    PAGE = 30 * 64

    def __init__(self, subject: int, pages: int):
        g = torch.Generator().manual_seed(subject)
        self.stages = torch.randint(0, 5, (pages,), generator=g).tolist()
        rate = torch.tensor(self.stages).repeat_interleave(self.PAGE) + 1.0
        phase = torch.cumsum(rate * 0.05, 0)
        self.signal = torch.stack([torch.sin(phase), torch.cos(phase * 0.5), torch.randn(pages * self.PAGE, generator=g)])

    def __len__(self):
        return len(self.stages)

    def __getitem__(self, i):
        page = self.signal[:, i * self.PAGE:(i + 1) * self.PAGE]
        return page, self.stages[i]


class Pages:
    """Some pages are dropped by the artefact filter, so the batch stays a list until then."""

    def __init__(self, limit: float):
        self.limit = limit

    def __call__(self, samples):
        kept = [(x, y) for x, y in samples if x.abs().max() < self.limit]
        return [x for x, _ in kept], torch.tensor([y for _, y in kept])


class Stager(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv1d(3, 16, 32, 16), nn.ReLU(), nn.Conv1d(16, 32, 8, 4), nn.ReLU(),
                               nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 5))

    def forward(self, x):
        return self.f(x)


class EarlyStop:
    def __init__(self, patience):
        self.best, self.patience, self.bad = float("inf"), patience, 0

    def __call__(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad >= self.patience


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--subjects", type=int, default=6)
    ap.add_argument("--pages", type=int, default=700)
    ap.add_argument("--epochs", type=int, default=3)
    a = ap.parse_args()
    torch.set_num_threads(1)
    nights = ConcatDataset([Night(s, a.pages) for s in range(a.subjects)])
    loader = DataLoader(nights, 32, shuffle=True, num_workers=2, collate_fn=Pages(6.0))
    net, stop = Stager(), EarlyStop(2)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(a.epochs):
        total = 0.0
        for pages, stages in loader:
            loss = nn.functional.cross_entropy(net(torch.stack(pages)), stages)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.3f}", flush=True)
        if stop(total):
            break


if __name__ == "__main__":
    main()
