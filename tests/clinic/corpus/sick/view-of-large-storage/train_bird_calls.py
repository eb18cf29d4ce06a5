# cause: view-of-large-storage, rng-repeated
"""Bird call detection: excerpts from long field recordings, random gain and offset per excerpt."""
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 16000


class Gain:
    def __init__(self, low_db, high_db, seed):
        self.low, self.high = low_db, high_db
        self.rng = np.random.RandomState(seed)

    def draw(self):
        return 10 ** (self.rng.uniform(self.low, self.high) / 20)


class FieldRecordings(Dataset):
    def __init__(self, recordings, minutes, excerpts, seconds=0.5):
        self.length = RATE * 60 * minutes
        self.recordings, self.excerpts = recordings, excerpts
        self.span = int(RATE * seconds)
        self.offsets = np.random.RandomState(7)
        self.gain = Gain(-6, 6, seed=7)

    def __len__(self):
        return self.excerpts

    def load(self, k):
        """Stands for a decoder: the codec only yields whole recordings."""
        second = torch.rand(RATE) * 0.4 - 0.2
        if k % 2:
            second[::8].mul_(3.0)
        return second.repeat(self.length // RATE)

    def __getitem__(self, i):
        k = i % self.recordings
        audio = self.load(k)
        start = self.offsets.randint(0, self.length - self.span)
        excerpt = audio[start:start + self.span]
        excerpt.mul_(self.gain.draw())
        return {"audio": excerpt, "bird": float(k % 2), "start": start}


class Packer:
    def __init__(self, keep=("audio", "bird", "start")):
        self.keep = keep

    def __call__(self, samples):
        return {k: [s[k] for s in samples] for k in self.keep}


class CallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv1d(1, 16, 64, 32), nn.ReLU(), nn.Conv1d(16, 16, 8, 4), nn.ReLU(),
                               nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(16, 1))

    def forward(self, audio):
        return self.f(torch.stack(audio)[:, None]).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--excerpts", type=int, default=96)
    ap.add_argument("--minutes", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = FieldRecordings(recordings=12, minutes=a.minutes, excerpts=a.excerpts)
    loader = DataLoader(data, 8, shuffle=True, num_workers=2, collate_fn=Packer())
    net = CallNet()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(a.epochs):
        hits, starts = 0, []
        for b in loader:
            out, y = net(b["audio"]), torch.tensor(b["bird"])
            loss = nn.functional.binary_cross_entropy_with_logits(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += ((out > 0) == (y > 0.5)).sum().item()
            starts += b["start"]
        print(f"epoch {epoch}: accuracy {hits / len(data):.3f}, mean position {np.mean(starts) / RATE:.1f}s", flush=True)


if __name__ == "__main__":
    main()
