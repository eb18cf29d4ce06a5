# cause: shm-exhausted
# also: prefetch-memory
# limits: shm=64M
"""Planet: Understanding the Amazon -- multi-label baseline on 6 band chips."""
import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split


class CFG:
    seed = 2017
    bands = 6
    size = 256
    tags = ["haze", "primary", "agriculture", "clear", "water", "habitation", "road"]
    n_chips = 160
    train_bs = 16
    valid_bs = 16
    num_workers = 2
    epochs = 3
    lr = 1e-3


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_competition_folder(root):
    rng = np.random.default_rng(CFG.seed)
    rows = []
    for i in range(CFG.n_chips):
        tags = rng.random(len(CFG.tags)) < 0.3
        base = rng.integers(20, 90, size=(CFG.bands, CFG.size // 8, CFG.size // 8), dtype=np.uint8)
        chip = base.repeat(8, axis=1).repeat(8, axis=2)
        chip[:3] += np.uint8(20 * tags[0])
        np.save(os.path.join(root, f"train_{i}.npy"), chip)
        rows.append((f"train_{i}", tags.astype(np.float32)))
    return rows


class Compose:
    def __init__(self, ts):
        self.ts = ts

    def __call__(self, x):
        for t in self.ts:
            x = t(x)
        return x


class ToFloat:
    def __call__(self, x):
        return x.astype(np.float32) / 255.0


class RandomDihedral:
    def __call__(self, x):
        x = np.rot90(x, k=random.randint(0, 3), axes=(1, 2))
        if random.random() < 0.5:
            x = x[:, :, ::-1]
        return x


class BandNormalize:
    def __init__(self, mean, std):
        self.mean = np.asarray(mean, np.float32)[:, None, None]
        self.std = np.asarray(std, np.float32)[:, None, None]

    def __call__(self, x):
        return (x - self.mean) / self.std


class AmazonChips(Dataset):
    def __init__(self, rows, root, tfm):
        self.names = [r[0] for r in rows]
        self.targets = np.stack([r[1] for r in rows])
        self.root = root
        self.tfm = tfm

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        chip = np.load(os.path.join(self.root, self.names[i] + ".npy"))
        x = torch.from_numpy(np.ascontiguousarray(self.tfm(chip)))
        return {"image": x, "target": torch.from_numpy(self.targets[i])}


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class TinyResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv(CFG.bands, 16), conv(16, 32), conv(32, 64), conv(64, 64))
        self.head = nn.Linear(64, len(CFG.tags))

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def f2(pred, true):
    tp = (pred * true).sum(1)
    p, r = tp / pred.sum(1).clamp(min=1), tp / true.sum(1).clamp(min=1)
    return (5 * p * r / (4 * p + r).clamp(min=1e-6)).mean().item()


if __name__ == "__main__":
    seed_everything(CFG.seed)
    with tempfile.TemporaryDirectory() as root:
        rows = make_competition_folder(root)
        tfm = Compose([ToFloat(), RandomDihedral(), BandNormalize([0.22] * CFG.bands, [0.08] * CFG.bands)])
        full = AmazonChips(rows, root, tfm)
        n_val = len(full) // 5
        trn, val = random_split(full, [len(full) - n_val, n_val], generator=torch.Generator().manual_seed(CFG.seed))
        train_loader = DataLoader(trn, CFG.train_bs, shuffle=True, num_workers=CFG.num_workers, drop_last=True)
        valid_loader = DataLoader(val, CFG.valid_bs, num_workers=CFG.num_workers)

        model = TinyResNet()
        opt = torch.optim.AdamW(model.parameters(), lr=CFG.lr)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, CFG.epochs)
        crit = nn.BCEWithLogitsLoss()
        for epoch in range(CFG.epochs):
            t0 = time.time()
            model.train()
            running = 0.0
            for step, batch in enumerate(train_loader):
                loss = crit(model(batch["image"]), batch["target"])
                opt.zero_grad()
                loss.backward()
                opt.step()
                running += loss.item()
            sched.step()
            model.eval()
            scores = []
            with torch.no_grad():
                for batch in valid_loader:
                    out = (model(batch["image"]).sigmoid() > 0.3).float()
                    scores.append(f2(out, batch["target"]))
            print(f"epoch {epoch} loss {running / len(train_loader):.4f} f2 {np.mean(scores):.4f} {time.time() - t0:.1f}s")
