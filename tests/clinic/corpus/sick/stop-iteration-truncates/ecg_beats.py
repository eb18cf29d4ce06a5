# cause: stop-iteration-truncates
# also: handle-shared-across-fork
"""Beat classification. Signals in one flat file, electrode noise taken from a recorded noise strip."""
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, CLASSES = 1024, 4


class NoiseStrip:
    def __init__(self, seconds, seed):
        x = np.random.default_rng(seed).normal(0, 0.05, seconds * 250).astype(np.float32)
        self.pieces = iter(x[k:k + LENGTH] for k in range(0, len(x) - LENGTH, LENGTH // 4))

    def take(self):
        return next(self.pieces)


class BeatFile:
    def __init__(self, path):
        self.f = open(path, "rb", buffering=0)
        self.count = os.fstat(self.f.fileno()).st_size // (4 * LENGTH)

    def __getitem__(self, i):
        self.f.seek(i * 4 * LENGTH)
        return np.frombuffer(self.f.read(4 * LENGTH), dtype=np.float32)


class Beats(Dataset):
    def __init__(self, beats, labels, noise):
        self.beats, self.labels, self.noise = beats, labels, noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        time.sleep(0.001)
        x = self.beats[i]
        if self.labels[i] != 0:
            x = x + self.noise.take()
        return torch.from_numpy(np.array(x)), int(self.labels[i])


def acquire(path, n):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, n)
    t = np.linspace(-1, 1, LENGTH)
    with open(path, "wb") as f:
        for c in labels:
            w = 0.02 + 0.02 * c
            f.write((np.exp(-(t / w) ** 2) - 0.3 * np.exp(-((t - 0.3) / 0.1) ** 2) + rng.normal(0, 0.02, LENGTH)).astype(np.float32).tobytes())
    return labels


class BeatNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 8, 15, 4), nn.ReLU(), nn.Conv1d(8, 16, 9, 4), nn.ReLU(), nn.AdaptiveMaxPool1d(4), nn.Flatten(),
                                 nn.Linear(64, CLASSES))

    def forward(self, x):
        return self.net(x.unsqueeze(1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "beats.f4")
        labels = acquire(path, 2400)
        data = Beats(BeatFile(path), labels, NoiseStrip(seconds=620, seed=1))
        loader = DataLoader(data, batch_size=24, shuffle=True, num_workers=2)
        net = BeatNet()
        opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
        right = seen = 0
        for x, y in loader:
            out = net(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (out.argmax(1) == y).sum().item()
            seen += len(y)
        print(f"training accuracy {right / seen:.3f} over {seen} beats", flush=True)


if __name__ == "__main__":
    main()
