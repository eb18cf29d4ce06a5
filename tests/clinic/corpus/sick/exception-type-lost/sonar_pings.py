# cause: exception-type-lost
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class CorruptPing(Exception):
    def __init__(self, survey, line, reason):
        super().__init__(f"{survey}: ping on line {line}: {reason}")
        self.survey, self.line, self.reason = survey, line, reason


@dataclass(frozen=True)
class Ping:
    survey: str
    line: int
    path: str
    seabed: int


class SonarLines(Dataset):
    """Side-scan sonar: one file per ping, big-endian amplitudes with a two word trailer."""

    def __init__(self, pings, beams=256):
        self.pings, self.beams = pings, beams
        self.gain = np.hanning(beams).astype(np.float32) + 0.1

    def __len__(self):
        return len(self.pings)

    def __getitem__(self, i):
        p = self.pings[i]
        words = np.fromfile(p.path, ">u2")
        if words[-1] != 0xBEEF:
            raise CorruptPing(p.survey, p.line, f"trailer {words[-1]:04x}")
        amp = words[:-2].astype(np.float32).reshape(-1, self.beams)
        amp = np.log1p(amp / self.gain)
        amp = np.median(np.stack([np.roll(amp, 1, 1), amp, np.roll(amp, -1, 1)]), 0)
        return torch.from_numpy(amp.mean(0).astype(np.float32)), p.seabed


def survey(folder, name, n, seed):
    rng = np.random.default_rng(seed)
    out = []
    for line in range(n):
        seabed = int(rng.integers(0, 3))
        amp = rng.gamma(2 + seabed, 300, (64, 256)).clip(0, 60000).astype(">u2")
        trailer = np.array([line & 0xFFFF, 0xBEEF if line % 211 != 200 else 0xBE00], ">u2")
        path = os.path.join(folder, f"{name}_{line:05d}.ping")
        np.concatenate([amp.ravel(), trailer]).astype(">u2").tofile(path)
        out.append(Ping(name, line, path, seabed))
    return out


def batches(loader, bad):
    it = iter(loader)
    for _ in range(len(loader)):
        try:
            yield next(it)
        except CorruptPing as e:
            bad.append(e)
            print(f"skipped a batch: {e}", flush=True)
        except StopIteration:
            break


def train(net, loader, opt, epochs, max_bad=20):
    for epoch in range(epochs):
        bad, start, n = [], time.time(), 0
        for x, y in batches(loader, bad):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            n += len(y)
        if len(bad) > max_bad:
            raise SystemExit(f"survey data in bad state, {len(bad)} batches lost")
        print(f"epoch {epoch}: {n} pings, {len(bad)} batches lost, loss {loss.item():.3f}, {time.time() - start:.1f}s", flush=True)


def main():
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory(prefix="sonar") as folder:
        pings = survey(folder, "gulf", 420, 1) + survey(folder, "shelf", 420, 2)
        loader = DataLoader(SonarLines(pings), batch_size=12, shuffle=True, num_workers=2, persistent_workers=True)
        net = nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 3))
        train(net, loader, torch.optim.Adam(net.parameters(), 1e-3), epochs=3)


if __name__ == "__main__":
    main()
