# cause: socket-path-too-long
# limits: tmpdir=long
"""Phase identification in powder diffraction patterns; scans are read from a scratch folder."""
import pathlib
import shutil
import tempfile
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

PHASES = {"halite": 5.64, "sylvite": 6.29, "fluorite": 5.46, "periclase": 4.21, "galena": 5.94}
WAVELENGTH = 1.5406
TWO_THETA = np.linspace(10, 90, 2048)


def pattern(a, rng):
    y = np.zeros_like(TWO_THETA)
    for h in range(5):
        for k in range(h + 1):
            for l in range(k + 1):
                if h == 0 or len({h % 2, k % 2, l % 2}) > 1:
                    continue
                d = a / np.sqrt(h * h + k * k + l * l)
                s = WAVELENGTH / (2 * d)
                if s < 1:
                    y += rng.uniform(0.5, 1) * np.exp(-((TWO_THETA - 2 * np.degrees(np.arcsin(s))) / 0.25) ** 2)
    return y + rng.normal(0, 0.03, y.shape)


@contextmanager
def measurement_campaign(count):
    root = pathlib.Path(tempfile.mkdtemp(prefix="xrd_"))
    rng = np.random.default_rng(11)
    try:
        for i in range(count):
            name = list(PHASES)[i % len(PHASES)]
            scan = pattern(PHASES[name] * rng.uniform(0.995, 1.005), rng)
            np.savetxt(root / f"{i:05d}_{name}.xy", np.c_[TWO_THETA, scan], fmt="%.4f")
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Scans(Dataset):
    def __init__(self, root):
        self.files = sorted(root.glob("*.xy"))
        self.classes = list(PHASES)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        scan = np.loadtxt(self.files[i], dtype=np.float32)[:, 1]
        scan = (scan - scan.mean()) / scan.std()
        return torch.from_numpy(scan)[None], self.classes.index(self.files[i].stem.split("_")[1])


def network():
    return nn.Sequential(nn.Conv1d(1, 8, 15, 4), nn.ReLU(), nn.Conv1d(8, 16, 9, 4), nn.ReLU(),
                         nn.AdaptiveMaxPool1d(16), nn.Flatten(), nn.Linear(256, len(PHASES)))


def evaluate(net, loader):
    net.eval()
    with torch.inference_mode():
        hits = [(net(x).argmax(1) == y).float() for x, y in loader]
    return torch.cat(hits).mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with measurement_campaign(400) as root:
        train, val = random_split(Scans(root), [0.8, 0.2])
        train = DataLoader(train, 16, shuffle=True, num_workers=2, persistent_workers=True)
        val = DataLoader(val, 32, num_workers=2, persistent_workers=True)
        net = network()
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        for epoch in range(3):
            net.train()
            for x, y in train:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(f"epoch {epoch}: loss {loss.item():.3f} val acc {evaluate(net, val):.3f}", flush=True)


if __name__ == "__main__":
    main()
