# cause: shm-leaked
# also: shm-exhausted
# limits: shm=256M
"""Short rounds of training on poster art with a different mixture each round; a bandit picks the mixture of the next round."""
import argparse
import io
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as tmp_mp
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

GENRES = ("noir", "western", "space")


def paint(root, count, side):
    rng = np.random.default_rng(0)
    for g, genre in enumerate(GENRES):
        (root / genre).mkdir()
        for i in range(count):
            px = rng.integers(0, 90, (side // 8, side // 8, 3)) + np.array([70 * (g == c) for c in range(3)])
            Image.fromarray(px.astype(np.uint8)).resize((side, side), Image.BILINEAR).save(root / genre / f"{i:03d}.jpg")


class Posters(Dataset):
    def __init__(self, root, side=256):
        self.items = [(p, GENRES.index(p.parent.name)) for p in sorted(root.glob("*/*.jpg"))]
        self.side = side

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, label = self.items[i]
        img = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
        if random.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        img = img.resize((self.side, self.side), Image.BICUBIC)
        return torch.from_numpy(np.asarray(img).copy()).permute(2, 0, 1).float().div_(255).contiguous(), label


class Bandit:
    def __init__(self, arms, eps=0.3):
        self.value, self.count, self.eps = [0.0] * len(arms), [0] * len(arms), eps
        self.arms = arms

    def pick(self):
        if random.random() < self.eps or not all(self.count):
            return self.count.index(min(self.count))
        return max(range(len(self.arms)), key=self.value.__getitem__)

    def reward(self, arm, r):
        self.count[arm] += 1
        self.value[arm] += (r - self.value[arm]) / self.count[arm]


def one_round(model, opt, data, weights, args):
    w = [weights[label] for _, label in data.items]
    loader = DataLoader(data, args.batch, sampler=WeightedRandomSampler(w, 4000), num_workers=args.workers,
                        prefetch_factor=args.prefetch)
    first = last = None
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        first, last = first or loss.item(), loss.item()
        if step + 1 >= args.steps:
            break
    return first - last, last


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--prefetch", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(1)
    random.seed(1)
    tmp_mp.set_sharing_strategy("file_system")   # the cluster's descriptor limit is low
    bandit = Bandit([(1, 1, 1), (3, 1, 1), (1, 3, 1), (1, 1, 3)])
    model = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(16, 3))
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    with tempfile.TemporaryDirectory() as tmp:
        paint(Path(tmp), 12, 128)
        data = Posters(Path(tmp))
        for r in range(args.rounds):
            arm = bandit.pick()
            gain, loss = one_round(model, opt, data, bandit.arms[arm], args)
            bandit.reward(arm, gain)
            print(f"round {r} mixture {bandit.arms[arm]} loss {loss:.3f} gain {gain:+.3f}", flush=True)


if __name__ == "__main__":
    main()
