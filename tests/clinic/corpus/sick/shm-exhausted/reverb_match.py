# cause: shm-exhausted
# limits: shm=64M
"""Predict the reverberation time of room recordings.  Clips are grouped by length to avoid padding."""
import random
import shutil
import tempfile
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

RATE = 16000


@dataclass
class Settings:
    clips: int = 80
    per_batch: int = 8
    workers: int = 2
    epochs: int = 2
    bins: int = 256


def record_room(path, seconds, rt60, rng):
    n = int(seconds * RATE)
    dry = np.zeros(n, dtype=np.float32)
    dry[rng.integers(0, n, size=max(4, int(seconds * 3)))] = 1.0
    tail = np.exp(-6.9 * np.arange(int(RATE * rt60)) / (RATE * rt60)) * rng.normal(size=int(RATE * rt60))
    size = 1 << (n + len(tail)).bit_length()
    wet = np.fft.irfft(np.fft.rfft(dry, size) * np.fft.rfft(tail, size), size)[:n]
    wet = wet / (np.abs(wet).max() + 1e-6)
    with wave.open(str(path), "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(RATE)
        w.writeframes((wet * 30000).astype("<i2").tobytes())


def make_corpus(root, cfg):
    rng = np.random.default_rng(5)
    items = []
    for k in range(cfg.clips):
        # most recordings are short memos; a tenth of the archive are whole rehearsals
        seconds = float(rng.uniform(0.5, 1.5)) if k % 10 else float(rng.uniform(28, 34))
        rt60 = float(rng.uniform(0.1, 0.6))
        path = root / f"room{k:03d}.wav"
        record_room(path, seconds, rt60, rng)
        items.append((path, seconds, rt60))
    return items


class Rooms(Dataset):
    def __init__(self, items, bins):
        self.items, self.bins = items, bins

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, _, rt60 = self.items[i]
        with wave.open(str(path), "rb") as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2").astype(np.float32) / 32768.0
        x = torch.from_numpy(pcm)
        spec = torch.stft(x, n_fft=2 * self.bins, hop_length=80, window=torch.hann_window(2 * self.bins), return_complex=True)
        logmag = torch.log1p(spec.abs() * 10)
        delta = F.pad(logmag[:, 1:] - logmag[:, :-1], (1, 0))
        return torch.stack([logmag, delta]), rt60


class LengthGroups(Sampler):
    def __init__(self, items, size):
        order = sorted(range(len(items)), key=lambda i: items[i][1])
        self.groups = [order[k:k + size] for k in range(0, len(order), size)]

    def __len__(self):
        return len(self.groups)

    def __iter__(self):
        groups = list(self.groups)
        head, tail = groups[:len(groups) // 2], groups[len(groups) // 2:]
        random.shuffle(head)
        return iter(head + tail)


class KeepRagged:
    def __call__(self, samples):
        specs = [s for s, _ in samples]
        return {"spec": specs, "frames": torch.tensor([s.shape[-1] for s in specs]),
                "rt60": torch.tensor([t for _, t in samples])}


class DecayNet(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.front = nn.Conv1d(2 * (bins + 1), 32, 5, stride=4)
        self.head = nn.Linear(64, 1)

    def forward(self, specs):
        pooled = []
        for s in specs:
            h = F.relu(self.front(s.flatten(0, 1).unsqueeze(0)))
            pooled.append(torch.cat([h.mean(-1), h.amax(-1)], dim=1))
        return self.head(torch.cat(pooled)).squeeze(1)


def run(cfg: Settings, root: Path):
    items = make_corpus(root, cfg)
    loader = DataLoader(Rooms(items, cfg.bins), batch_sampler=LengthGroups(items, cfg.per_batch), num_workers=cfg.workers,
                        collate_fn=KeepRagged(), persistent_workers=True)
    net = DecayNet(cfg.bins)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(cfg.epochs):
        seen, total = 0, 0.0
        for step, batch in enumerate(loader):
            loss = F.smooth_l1_loss(net(batch["spec"]), batch["rt60"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(batch["spec"])
            total += loss.item()
            print(f"epoch {epoch} step {step} frames {int(batch['frames'].sum())} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch}: {seen} clips, mean loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp(prefix="rooms_"))
    try:
        run(Settings(), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
