"""SimCLR pre-training on a small in-memory texture set, two augmented views per image."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, random_split

CFG = dict(images=1600, side=40, crop=32, batch=64, epochs=8, temperature=0.2, lr=3e-4)


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, x):
        for s in self.steps:
            x = s(x)
        return x


class RandomCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, x):
        top, left = np.random.randint(0, x.shape[1] - self.size + 1, 2)
        return x[:, top:top + self.size, left:left + self.size]


class RandomFlip:
    def __call__(self, x):
        return x[:, :, ::-1] if np.random.random() < 0.5 else x


class Jitter:
    def __init__(self, s):
        self.s = s

    def __call__(self, x):
        gain = 1 + np.random.uniform(-self.s, self.s, (3, 1, 1))
        shift = np.random.uniform(-self.s, self.s, (3, 1, 1))
        return (x * gain + shift).astype(np.float32)


class BoxBlur:
    def __call__(self, x):
        if np.random.random() < 0.5:
            return x
        p = np.pad(x, ((0, 0), (1, 1), (1, 1)), mode="edge")
        h, w = x.shape[1:]
        return sum(p[:, i:i + h, j:j + w] for i in range(3) for j in range(3)) / 9


class Textures(Dataset):
    def __init__(self, n, side, transform, seed=0):
        g = np.random.default_rng(seed)
        yy, xx = np.mgrid[:side, :side].astype(np.float32)
        freq = g.uniform(0.1, 1.2, (n, 3, 2, 1, 1)).astype(np.float32)
        self.images = np.sin(freq[:, :, 0] * xx + freq[:, :, 1] * yy).astype(np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = self.images[i]
        a, b = self.transform(img), self.transform(img)
        return torch.from_numpy(np.stack([a, b]))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        def block(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.BatchNorm2d(o), nn.ReLU())
        self.trunk = nn.Sequential(block(3, 24, 1), block(24, 48, 2), block(48, 96, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 32))

    def forward(self, x):
        return F.normalize(self.head(self.trunk(x)), dim=1)


def nt_xent(z, t):
    n = len(z) // 2
    sim = z @ z.T / t
    sim.fill_diagonal_(-1e9)
    target = torch.arange(2 * n).roll(n)
    return F.cross_entropy(sim, target)


def run():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    aug = Compose(RandomCrop(CFG["crop"]), RandomFlip(), Jitter(0.4), BoxBlur())
    full = Textures(CFG["images"], CFG["side"], aug)
    train, _ = random_split(full, [1536, 64], generator=torch.Generator().manual_seed(0))
    loader = DataLoader(train, CFG["batch"], shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
    net = Encoder()
    opt = torch.optim.AdamW(net.parameters(), CFG["lr"])
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, CFG["epochs"] * len(loader))
    for epoch in range(CFG["epochs"]):
        tot, wait, t = 0.0, 0.0, time.perf_counter()
        begin = t
        for views in loader:
            wait += time.perf_counter() - t
            flat = views.transpose(0, 1).flatten(0, 1)
            loss = nt_xent(net(flat), CFG["temperature"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            tot += loss.item()
            t = time.perf_counter()
        print(f"[{epoch}] nt-xent {tot / len(loader):.3f}  {t - begin:.1f}s, of it {wait:.2f}s data", flush=True)


if __name__ == "__main__":
    run()
