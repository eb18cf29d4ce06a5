"""Tide height regression. Everything fits into memory, so batches are cut out of two tensors."""
import math
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

PERIODS = (12.42, 12.0, 12.66, 23.93, 25.82, 24.07)


class TideTable(Dataset):
    """Indexing with a list of rows gives a whole batch."""

    def __init__(self, hours, first, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(first, first + hours, dtype=torch.float64)
        waves = torch.stack([fn(t / p * math.tau) for p in PERIODS for fn in (torch.sin, torch.cos)], 1)
        height = waves @ torch.linspace(1.5, 0.2, waves.shape[1], dtype=torch.float64)
        self.x = torch.cat([waves.float(), (t % 24 / 24).float()[:, None]], 1)
        self.y = height.float() + 0.05 * torch.randn(hours, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, rows):
        return self.x[rows], self.y[rows]


def loader_for(table, size, shuffle):
    order = RandomSampler(table) if shuffle else SequentialSampler(table)
    return DataLoader(table, sampler=BatchSampler(order, size, drop_last=False), batch_size=None)


class Regressor(nn.Module):
    def __init__(self, inputs, width=96):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    error = sum((model(x) - y).abs().sum().item() for x, y in loader) / len(loader.sampler.sampler)
    model.train()
    return error


def main(epochs=4, batch=512):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = loader_for(TideTable(200_000, 0, 1), batch, True)
    valid = loader_for(TideTable(20_000, 300_000, 2), 4096, False)
    model = Regressor(2 * len(PERIODS) + 1)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs)
    best = float("inf")
    for epoch in range(epochs):
        began = time.time()
        for x, y in train:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        schedule.step()
        error = validate(model, valid)
        best = min(best, error)
        print(f"epoch {epoch} valid {error:.4f} best {best:.4f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
