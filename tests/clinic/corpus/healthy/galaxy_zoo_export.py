# limits: nofile=256
"""Galaxy morphology: trains on rendered cutouts and exports every prediction with its target at the end."""
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 64


class Cutouts(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed
        self.yy, self.xx = np.mgrid[-1:1:SIZE * 1j, -1:1:SIZE * 1j]

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        kind, q, pa = int(rng.integers(2)), rng.uniform(0.3, 1), rng.uniform(0, np.pi)
        img = np.zeros((SIZE, SIZE))
        for sub in rng.normal(0, 0.02, (10, 2)):          # seeing, by dithering
            x = (self.xx - sub[0]) * np.cos(pa) + (self.yy - sub[1]) * np.sin(pa)
            y = (-(self.xx - sub[0]) * np.sin(pa) + (self.yy - sub[1]) * np.cos(pa)) / q
            r, th = np.hypot(x, y), np.arctan2(y, x)
            img += np.exp(-4 * r) if kind == 0 else np.exp(-3 * r) * (1 + np.cos(2 * th - 9 * r))
        img = img / img.max() + rng.normal(0, 0.05, img.shape)
        return torch.from_numpy(img.astype(np.float32))[None], kind, i


def network():
    return nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(144, 2))


class Collected:
    def __init__(self):
        self.prob, self.kind, self.index = [], [], []

    def add(self, logits, kind, index):
        self.prob.append(logits.detach().softmax(1)[:, 1])
        self.kind.append(kind.clone())
        self.index.append(index.clone())

    def export(self, path):
        prob, kind, index = (torch.cat(v) for v in (self.prob, self.kind, self.index))
        order = index.argsort()
        path.write_text(json.dumps([prob[order].tolist(), kind[order].tolist()]))
        return len(order), float(((prob > 0.5) == (kind == 1)).float().mean())


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = DataLoader(Cutouts(2000, 1), 10, shuffle=True, num_workers=2, persistent_workers=True)
    test = DataLoader(Cutouts(1600, 2), 10, num_workers=2)
    net = network()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(2):
        for x, y, _ in train:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    out = Collected()
    with torch.no_grad():
        for x, y, i in test:
            out.add(net(x), y, i)
    with tempfile.TemporaryDirectory() as tmp:
        print("exported %d, accuracy %.3f" % out.export(Path(tmp) / "votes.json"))


if __name__ == "__main__":
    main()
