# cause: per-worker-cache
"""Keyword spotting; clips are cut out of long recordings."""
import os
import tempfile
import wave

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CFG = {"data": {"recordings": 40, "seconds": 60, "rate": 16000, "clip": 8000, "clips": 700},
       "loader": {"batch_size": 20, "num_workers": 2, "persistent_workers": True, "shuffle": True},
       "train": {"epochs": 3, "lr": 1e-3}}


def synthesise(root, cfg):
    rng = np.random.default_rng(5)
    t = np.arange(cfg["seconds"] * cfg["rate"]) / cfg["rate"]
    for k in range(cfg["recordings"]):
        sig = 0.4 * np.sin(2 * np.pi * (200 + 100 * (k % 8)) * t) + 0.05 * rng.standard_normal(len(t))
        with wave.open(os.path.join(root, f"{k:02d}.wav"), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(cfg["rate"])
            w.writeframes((sig * 32000).clip(-32768, 32767).astype("<i2").tobytes())


class Recording:
    def __init__(self, path):
        self.path = path
        self._samples = None

    @property
    def samples(self):
        if self._samples is None:
            with wave.open(self.path) as w:
                pcm = np.frombuffer(w.readframes(w.getnframes()), "<i2")
            self._samples = (pcm / 32768.0).astype(np.float32)
        return self._samples

    def clip(self, start, length):
        return self.samples[start:start + length]


class Archive:
    def __init__(self, root):
        self.recordings = {name: Recording(os.path.join(root, name)) for name in sorted(os.listdir(root))}
        self.names = list(self.recordings)

    def __getitem__(self, name):
        return self.recordings[name]


class Clips(Dataset):
    def __init__(self, archive, cfg):
        self.archive, self.cfg = archive, cfg
        self.window = np.hanning(400).astype(np.float32)

    def __len__(self):
        return self.cfg["clips"]

    def __getitem__(self, i):
        name = self.archive.names[int(torch.randint(len(self.archive.names), ()))]
        last = self.cfg["seconds"] * self.cfg["rate"] - self.cfg["clip"]
        x = self.archive[name].clip(int(torch.randint(last, ())), self.cfg["clip"])
        frames = np.lib.stride_tricks.sliding_window_view(x, 400)[::80] * self.window
        spec = np.log1p(np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32)
        return torch.from_numpy(spec[:, :80].T.copy()), int(name[:2]) % 8


def main():
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv1d(80, 64, 5), nn.ReLU(), nn.Conv1d(64, 64, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 8))
    opt = torch.optim.Adam(net.parameters(), lr=CFG["train"]["lr"])
    with tempfile.TemporaryDirectory() as root:
        synthesise(root, CFG["data"])
        loader = DataLoader(Clips(Archive(root), CFG["data"]), **CFG["loader"])
        for epoch in range(CFG["train"]["epochs"]):
            hits = 0
            for spec, y in loader:
                out = net(spec)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                hits += int((out.argmax(1) == y).sum())
            print("epoch", epoch, "accuracy", round(hits / len(loader.dataset), 3))


if __name__ == "__main__":
    main()
