# cause: lock-held-at-fork
"""Keyword spotting on synthetic tones, with a small journal of what the front end saw."""
import os
import queue
import tempfile
import threading
import time
import wave

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

CONFIG = {"sr": 8000, "clips": 240, "classes": 6, "n_fft": 256, "hop": 128, "batch": 12, "workers": 2, "epochs": 1}


class Journal:
    """Collects one line per decoded clip and appends them to a file from time to time."""

    def __init__(self, path):
        self.path = path
        self.entries = queue.Queue()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._drain, daemon=True)

    def start(self):
        self.thread.start()
        return self

    def add(self, **fields):
        self.entries.put(fields)

    def _drain(self):
        while not self.stop.is_set():
            with self.entries.mutex:
                pending = list(self.entries.queue)
                self.entries.queue.clear()
                with open(self.path, "a") as f:
                    for e in pending:
                        f.write(repr(e) + "\n")
                    f.flush()
                    os.fsync(f.fileno())
                time.sleep(0.25)
            self.stop.wait(3.0)


class Frontend:
    def __init__(self, cfg, journal=None):
        self.cfg = cfg
        self.journal = journal
        self.window = torch.hann_window(cfg["n_fft"])

    def __call__(self, path):
        with wave.open(path) as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), dtype=np.int16)
        x = torch.from_numpy(pcm.astype(np.float32) / 32768)
        spec = torch.stft(x, self.cfg["n_fft"], self.cfg["hop"], window=self.window, return_complex=True).abs()
        if self.journal is not None:
            self.journal.add(file=os.path.basename(path), peak=float(x.abs().max()))
        return torch.log1p(spec)


class Clips(Dataset):
    def __init__(self, root, frontend):
        self.files = sorted(os.path.join(root, f) for f in os.listdir(root) if f.endswith(".wav"))
        self.frontend = frontend

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        label = int(os.path.basename(self.files[i]).split("_")[0])
        return self.frontend(self.files[i]), label


def synthesise(root, cfg):
    rng = np.random.default_rng(0)
    t = np.arange(cfg["sr"]) / cfg["sr"]
    for i in range(cfg["clips"]):
        c = i % cfg["classes"]
        x = 0.5 * np.sin(2 * np.pi * (300 + 250 * c) * t) + 0.05 * rng.normal(size=t.size)
        with wave.open(os.path.join(root, f"{c}_{i:04d}.wav"), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(cfg["sr"])
            w.writeframes((x * 30000).clip(-32768, 32767).astype(np.int16).tobytes())


class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.c1 = nn.Conv1d(129, 64, 3, padding=1)
        self.c2 = nn.Conv1d(64, 64, 3, padding=1)
        self.out = nn.Linear(64, n)

    def forward(self, x):
        x = F.relu(self.c2(F.relu(self.c1(x))))
        return self.out(x.mean(-1))


def run(cfg):
    with tempfile.TemporaryDirectory() as root:
        synthesise(root, cfg)
        journal = Journal(os.path.join(root, "frontend.log"))
        data = Clips(root, Frontend(cfg, journal))
        mean = torch.stack([data[i][0].mean() for i in range(8)]).mean()
        train, val = random_split(data, [200, 40], generator=torch.Generator().manual_seed(1))
        model = Net(cfg["classes"])
        opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
        journal.start()
        for epoch in range(cfg["epochs"]):
            model.train()
            for x, y in DataLoader(train, cfg["batch"], shuffle=True, num_workers=cfg["workers"]):
                loss = F.cross_entropy(model(x - mean), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            model.eval()
            with torch.no_grad():
                hits = sum((model(x - mean).argmax(1) == y).sum().item() for x, y in DataLoader(val, 20))
            print(f"epoch {epoch}: loss {loss.item():.3f} val acc {hits / len(val):.2f}", flush=True)
        journal.stop.set()


if __name__ == "__main__":
    run(CONFIG)
