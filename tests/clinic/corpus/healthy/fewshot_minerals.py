"""Few-shot mineral recognition: an episode reads its support set through a small loader of its own."""
import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

WAYS, SHOTS, QUERIES = 4, 3, 3


def make_loader(ds, batch, workers=2, **kw):
    return DataLoader(ds, batch_size=batch, num_workers=workers, persistent_workers=workers > 0, **kw)


class Minerals(Dataset):
    def __init__(self, classes, per_class, seed):
        rng = np.random.default_rng(seed)
        self.texture = rng.integers(0, 255, (classes, 80, 80), dtype=np.uint8)
        self.per_class, self.classes = per_class, classes

    def __len__(self):
        return self.classes * self.per_class

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        img = Image.fromarray(self.texture[i // self.per_class]).resize((128, 128), Image.BICUBIC)
        img = img.rotate(float(rng.uniform(0, 360)), resample=Image.BICUBIC).filter(ImageFilter.GaussianBlur(1))
        return torch.from_numpy(np.asarray(img.resize((48, 48)), dtype=np.float32) / 255)[None], i // self.per_class


class Episodes(Dataset):
    def __init__(self, minerals, length, seed):
        self.minerals, self.length, self.seed = minerals, length, seed

    def __len__(self):
        return self.length

    def choose(self, i):
        rng = np.random.default_rng((self.seed, i))
        m = self.minerals
        for c in rng.choice(m.classes, WAYS, replace=False):
            yield from (int(c) * m.per_class + rng.choice(m.per_class, SHOTS + QUERIES, replace=False)).tolist()

    def __getitem__(self, i):
        rows = Subset(self.minerals, list(self.choose(i)))
        x = torch.stack([b for b, _ in make_loader(rows, SHOTS + QUERIES, workers=0)])
        mean = x[:, :SHOTS].mean((0, 1), keepdim=True)
        return x - mean


class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 96, 3, 2, 1), nn.ReLU(),
                               nn.Conv2d(96, 128, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())

    def forward(self, ep):
        z = self.f(ep.flatten(0, 2)).view(*ep.shape[:3], -1)
        proto = z[:, :, :SHOTS].mean(2)
        q = z[:, :, SHOTS:].flatten(1, 2)
        target = torch.arange(WAYS).repeat_interleave(QUERIES).repeat(len(ep))
        return -torch.cdist(q, proto).flatten(0, 1), target


class Stage:
    def __init__(self, name, loader, learn):
        self.name, self.loader, self.learn = name, loader, learn

    def run(self, model, opt):
        good = n = 0
        for ep in self.loader:
            with torch.set_grad_enabled(self.learn):
                logits, target = model(ep)
                loss = nn.functional.cross_entropy(logits, target)
            if self.learn:
                opt.zero_grad()
                loss.backward()
                opt.step()
            good, n = good + (logits.argmax(1) == target).sum().item(), n + len(target)
        return f"{self.name} {good / n:.3f}"


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    base, novel = Minerals(24, 20, 1), Minerals(8, 20, 2)
    stages = [Stage("train", make_loader(Episodes(base, 60, 0), 2, shuffle=True), True),
              Stage("novel", make_loader(Episodes(novel, 20, 1), 2), False)]
    model = Embed()
    opt = torch.optim.Adam(model.parameters(), 5e-4)
    for epoch in range(3):
        print(epoch, *(s.run(model, opt) for s in stages), flush=True)


if __name__ == "__main__":
    main()
