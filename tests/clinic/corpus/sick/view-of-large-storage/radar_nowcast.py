# cause: view-of-large-storage
# also: shm-exhausted
# limits: shm=64M
"""Precipitation nowcasting: given six radar frames, predict the next two (advection of synthetic rain cells)."""
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Dataset, RandomSampler

PAST, FUTURE = 6, 2
EDGE = 128
DAYS = 4
FRAMES_PER_DAY = 480


def simulate_day(seed):
    """One day of reflectivity, frame by frame: drifting Gaussian cells that grow and decay."""
    g = torch.Generator().manual_seed(seed)
    cells = 6
    centre = torch.rand(cells, 2, generator=g) * EDGE
    drift = torch.randn(cells, 2, generator=g) * 0.6
    width = torch.rand(cells, generator=g) * 8 + 4
    axis = torch.arange(EDGE).float()
    day = torch.empty(FRAMES_PER_DAY, EDGE, EDGE)
    for t in range(FRAMES_PER_DAY):
        position = (centre + t * drift) % EDGE
        gy = torch.exp(-((axis[None] - position[:, :1]) ** 2) / (2 * width[:, None] ** 2))
        gx = torch.exp(-((axis[None] - position[:, 1:]) ** 2) / (2 * width[:, None] ** 2))
        day[t] = torch.einsum("ky,kx->yx", gy, gx)
    return day


class RadarDay(Dataset):
    """Windows of a day; frames are contiguous in time so a window is cheap to cut."""

    def __init__(self, frames):
        self.frames = frames

    def __len__(self):
        return len(self.frames) - PAST - FUTURE + 1

    def __getitem__(self, start):
        window = self.frames.narrow(0, start, PAST + FUTURE)
        return window.split([PAST, FUTURE])


class Despeckle:
    """Median of three neighbours, as the radar service applies it to its product."""

    def __call__(self, frames):
        left, right = frames.roll(1, -1), frames.roll(-1, -1)
        return torch.stack([left, frames, right]).median(0).values


class Windows(Dataset):
    """Adds per-window quality numbers that the loss is weighted with."""

    def __init__(self, days):
        self.base = ConcatDataset(days)
        self.clean = Despeckle()

    def __len__(self):
        return len(self.base)

    def __getitem__(self, index):
        past, future = self.base[index]
        speckle = (self.clean(past) - past).abs().mean(dim=(1, 2))
        return past, future, torch.exp(-speckle.mean() * 10)


def as_lists(samples):
    past, future, quality = zip(*samples)
    return {"past": list(past), "future": list(future), "quality": torch.stack(quality)}


class Nowcaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Conv2d(PAST, 12, 5, stride=2, padding=2)
        self.mix = nn.Conv2d(12, 12, 3, padding=1)
        self.decode = nn.Conv2d(12, FUTURE * 4, 3, padding=1)

    def forward(self, past):
        h = F.relu(self.mix(F.relu(self.encode(past))))
        return past[:, -1:] + F.pixel_shuffle(self.decode(h), 2)


def loaders():
    days = [RadarDay(simulate_day(seed)) for seed in range(DAYS)]
    train, val = Windows(days[:-1]), Windows(days[-1:])
    sampler = BatchSampler(RandomSampler(train, num_samples=800), 8, drop_last=True)
    options = dict(num_workers=2, collate_fn=as_lists)
    return (DataLoader(train, batch_sampler=sampler, persistent_workers=True, **options),
            DataLoader(val, batch_size=16, **options))


def weighted_loss(model, batch):
    past, future = torch.stack(batch["past"]), torch.stack(batch["future"])
    error = (model(past) - future).pow(2).mean(dim=(1, 2, 3))
    return (error * batch["quality"]).mean()


def main():
    torch.manual_seed(0)
    train_loader, val_loader = loaders()
    model = Nowcaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    best = float("inf")
    for epoch in range(3):
        began, running = time.perf_counter(), 0.0
        for batch in train_loader:
            loss = weighted_loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        with torch.no_grad():
            val = sum(weighted_loss(model, b).item() for b in val_loader) / len(val_loader)
        best = min(best, val)
        print(f"epoch {epoch} train {running / len(train_loader):.5f} val {val:.5f} "
              f"best {best:.5f} {time.perf_counter() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
