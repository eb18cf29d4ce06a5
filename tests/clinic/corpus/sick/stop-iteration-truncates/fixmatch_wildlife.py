# cause: stop-iteration-truncates, iterator-rebuilt-each-step
# also: stale-iterator-noise
"""Semi-supervised species classification on camera-trap crops (pseudo labels on unlabelled frames)."""
import math
import time
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

SPECIES = {11: "roe deer", 12: "wild boar", 15: "red fox", 21: "badger", 30: "lynx"}
IGNORED = {1: "person", 2: "vehicle"}


def camera_trap(n, seed, side=64):
    """COCO-like tables: frames, and annotations per frame (several animals may be in view)."""
    g = np.random.default_rng(seed)
    ids, frames, anns = list(SPECIES), [], {}
    for i in range(n):
        sp = ids[int(g.integers(len(ids)))]
        img = g.integers(0, 110, size=(side, side, 3), dtype=np.uint8)
        img[8:-8, 8:-8, sp % 3] += np.uint8(4 * sp)
        frames.append(img)
        rows = [{"category_id": sp, "bbox": (8, 8, side - 16, side - 16)}]
        if g.random() < 0.3:
            rows.insert(0, {"category_id": 2, "bbox": (0, 0, 20, 20)})
        if i % 331 == 170:                                    # the ranger came by
            rows = [{"category_id": 1, "bbox": (10, 10, 30, 50)}]
        anns[i] = rows
    return frames, anns


class WeakAugment:
    def __call__(self, x):
        if torch.rand(()) < 0.5:
            x = x.flip(2)
        dx, dy = torch.randint(-4, 5, (2,)).tolist()
        return x.roll((dy, dx), (1, 2))


class StrongAugment(WeakAugment):
    def __call__(self, x):
        x = super().__call__(x)
        x = (x - x.mean()) * (0.5 + torch.rand(())) + x.mean() + 0.2 * torch.randn(3, 1, 1)
        a, shear = (torch.rand(2) - 0.5).tolist()
        theta = torch.tensor([[[math.cos(a), -math.sin(a) + shear, 0.0], [math.sin(a), math.cos(a), 0.0]]])
        grid = F.affine_grid(theta, (1, *x.shape), align_corners=False)
        x = F.grid_sample(x[None], grid, padding_mode="reflection", align_corners=False)[0]
        t, l = torch.randint(0, 40, (2,)).tolist()
        x[:, t:t + 20, l:l + 20] = 0.5
        return x


def to_float(img):
    return torch.from_numpy(img).permute(2, 0, 1).float() / 255


class LabelledCrops(Dataset):
    def __init__(self, frames, anns):
        self.frames, self.anns = frames, anns
        self.classes = {c: k for k, c in enumerate(SPECIES)}
        self.augment = WeakAugment()

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        animal = next(a for a in self.anns[i] if a["category_id"] not in IGNORED)
        x, y, w, h = animal["bbox"]
        crop = to_float(self.frames[i][y:y + h, x:x + w])
        crop = F.interpolate(crop[None], size=(64, 64), mode="bilinear", align_corners=False)[0]
        return self.augment(crop), self.classes[animal["category_id"]]


class UnlabelledFrames(Dataset):
    def __init__(self, frames):
        self.frames, self.weak, self.strong = frames, WeakAugment(), StrongAugment()

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        x = to_float(self.frames[i])
        return self.weak(x), self.strong(x)


class Net(nn.Sequential):
    def __init__(self, w=8):
        super().__init__(nn.Conv2d(3, w, 3, 2, 1), nn.ReLU(), nn.Conv2d(w, 2 * w, 3, 2, 1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * w, len(SPECIES)))


class Ema:
    def __init__(self, net, decay=0.99):
        self.decay, self.shadow = decay, {k: v.clone() for k, v in net.state_dict().items()}

    def update(self, net):
        for k, v in net.state_dict().items():
            self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)


class FixMatch:
    def __init__(self, cfg):
        self.cfg = cfg
        labelled = LabelledCrops(*camera_trap(cfg.labelled, seed=1))
        unlabelled = UnlabelledFrames(camera_trap(cfg.unlabelled, seed=2)[0])
        self.labelled_loader = DataLoader(labelled, cfg.batch, shuffle=True, num_workers=1, drop_last=True,
                                          generator=torch.Generator().manual_seed(cfg.seed))
        self.unlabelled_loader = DataLoader(unlabelled, cfg.batch * cfg.mu, num_workers=cfg.workers,
                                            sampler=RandomSampler(unlabelled), drop_last=True)
        self.net = Net()
        self.ema = Ema(self.net)
        self.opt = torch.optim.SGD(self.net.parameters(), cfg.lr, momentum=0.9, nesterov=True)

    def step(self, x, y):
        weak, strong = next(iter(self.unlabelled_loader))
        with torch.no_grad():
            conf, pseudo = self.net(weak).softmax(1).max(1)
        logits = self.net(torch.cat([x, strong]))
        sup = F.cross_entropy(logits[:len(x)], y)
        uns = (F.cross_entropy(logits[len(x):], pseudo, reduction="none") * (conf > self.cfg.tau)).mean()
        self.opt.zero_grad()
        (sup + self.cfg.lam * uns).backward()
        self.opt.step()
        self.ema.update(self.net)
        return sup.item(), uns.item(), (conf > self.cfg.tau).float().mean().item()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            t0, log = time.time(), []
            for g in self.opt.param_groups:
                g["lr"] = self.cfg.lr * math.cos(7 * math.pi * epoch / (16 * self.cfg.epochs))
            for x, y in self.labelled_loader:
                log.append(self.step(x, y))
            sup, uns, used = np.mean(log or [(0.0, 0.0, 0.0)], axis=0)
            print(f"epoch {epoch}: sup {sup:.3f} unsup {uns:.3f} used {used:.2f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    cfg = SimpleNamespace(labelled=700, unlabelled=1500, batch=8, mu=5, workers=2, epochs=8, lr=0.03, tau=0.8, lam=1.0, seed=8)
    torch.manual_seed(cfg.seed)
    FixMatch(cfg).fit()
