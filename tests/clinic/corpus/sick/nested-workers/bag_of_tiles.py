# cause: nested-workers
"""Multiple instance learning: a bag is a slide, its instances are tiles embedded by a frozen encoder."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class LoaderOptions:
    batch_size: int = 16
    workers: int = 2
    shuffle: bool = False


def make_loader(dataset, options, **extra):
    """The one place where loaders are made in this project."""
    return DataLoader(dataset, batch_size=options.batch_size, shuffle=options.shuffle, num_workers=options.workers,
                      **extra)


class Tiles(Dataset):
    def __init__(self, slide_seed, positive, count=32, side=32):
        self.seed, self.positive, self.count, self.side = slide_seed, positive, count, side

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        g = torch.Generator().manual_seed(self.seed * 1000 + k)
        tile = torch.rand(3, self.side, self.side, generator=g)
        if self.positive and k % 8 == 0:
            tile[0, 8:20, 8:20] += 0.8
        return tile


class Encoder(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(3, dim, 8, stride=8), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten())
        self.requires_grad_(False)

    def forward(self, x):
        return self.f(x)


class SlideBags(Dataset):
    def __init__(self, slides, encoder, tile_options):
        g = torch.Generator().manual_seed(77)
        self.positive = (torch.rand(slides, generator=g) < 0.5).tolist()
        self.encoder = encoder.eval()
        self.tile_options = tile_options

    def __len__(self):
        return len(self.positive)

    @torch.no_grad()
    def embed(self, i):
        tiles = make_loader(Tiles(i, self.positive[i]), self.tile_options)
        return torch.cat([self.encoder(t) for t in tiles])

    def __getitem__(self, i):
        return self.embed(i), float(self.positive[i])


class AttentionPool(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(dim, 16), nn.Tanh(), nn.Linear(16, 1))
        self.head = nn.Linear(dim, 1)

    def forward(self, bags):
        w = self.score(bags).softmax(dim=1)
        return self.head((w * bags).sum(1)).squeeze(1)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    options = LoaderOptions()
    bags = SlideBags(320, Encoder(), options)
    train_set, val_set = torch.utils.data.random_split(bags, [260, 60])
    train = make_loader(train_set, LoaderOptions(batch_size=10, shuffle=True), persistent_workers=True)
    val = make_loader(val_set, LoaderOptions(batch_size=10))
    net = AttentionPool()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for epoch in range(3):
        for x, y in train:
            loss = nn.functional.binary_cross_entropy_with_logits(net(x), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            acc = sum(((net(x) > 0) == (y > 0.5)).sum().item() for x, y in val) / len(val_set)
        print(f"epoch {epoch}: loss {loss.item():.3f} val acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
