# cause: worker-exited
"""Spoken command recognition, config in the dictionary below."""
import os
import sys
import tempfile
import wave

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

cfg = dict(words=["yes", "no", "up", "down", "stop"], per_word=120, sr=16000, n_mels=40, batch=25, workers=2,
           epochs=6, lr=1e-3)


def write_wav(path, x, sr):
    with wave.open(path, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(sr)
        w.writeframes((x * 30000).clip(-32768, 32767).astype("<i2").tobytes())


def fake_corpus(root):
    rng = np.random.default_rng(21)
    t = np.arange(cfg["sr"]) / cfg["sr"]
    for wi, word in enumerate(cfg["words"]):
        os.makedirs(os.path.join(root, word))
        for k in range(cfg["per_word"]):
            f = 300 + 250 * wi + rng.normal(0, 20)
            env = np.exp(-((t - rng.uniform(0.3, 0.7)) / 0.15) ** 2)
            x = 0.6 * env * np.sin(2 * np.pi * f * t * (1 + 0.1 * t)) + 0.02 * rng.standard_normal(len(t))
            # a few speakers sent us what their telephone recorded
            sr = 8000 if (word, k) in {("down", 17), ("stop", 88)} else cfg["sr"]
            write_wav(os.path.join(root, word, f"{k:03d}.wav"), x[::cfg["sr"] // sr], sr)


def load_audio(path, sr):
    with wave.open(path, "rb") as w:
        if w.getframerate() != sr:
            print(f"{path}: expected {sr} Hz, got {w.getframerate()} Hz, please resample", file=sys.stderr)
            sys.exit(1)
        return np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32) / 32768


def mel_filters(n_mels, n_fft, sr):
    hz = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + sr / 1400), n_mels + 2) / 2595) - 1)
    bins = hz / sr * n_fft
    k = np.arange(n_fft // 2 + 1)
    up = (k - bins[:-2, None]) / (bins[1:-1] - bins[:-2])[:, None]
    down = (bins[2:, None] - k) / (bins[2:] - bins[1:-1])[:, None]
    return torch.from_numpy(np.clip(np.minimum(up, down), 0, None)).float()


class Commands(Dataset):
    def __init__(self, root, split):
        self.items = []
        for wi, word in enumerate(cfg["words"]):
            for name in sorted(os.listdir(os.path.join(root, word))):
                is_val = int(name[:3]) % 6 == 0
                if is_val == (split == "val"):
                    self.items.append((os.path.join(root, word, name), wi))
        self.fb = mel_filters(cfg["n_mels"], 512, cfg["sr"])
        self.win = torch.hann_window(400)
        self.split = split

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, label = self.items[i]
        x = torch.from_numpy(load_audio(path, cfg["sr"]))
        if self.split == "train":
            x = torch.roll(x, int(torch.randint(-800, 800, ())))
        power = torch.stft(x, 512, 160, 400, self.win, return_complex=True).abs() ** 2
        return torch.log(self.fb @ power + 1e-6), label


class DSCNN(nn.Module):
    def __init__(self, n_mels, n_words, ch=64):
        super().__init__()
        self.inp = nn.Conv1d(n_mels, ch, 7, stride=2)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv1d(ch, ch, 5, padding=2, groups=ch), nn.Conv1d(ch, ch, 1),
                                                  nn.BatchNorm1d(ch), nn.ReLU()) for _ in range(3))
        self.out = nn.Linear(ch, n_words)

    def forward(self, x):
        x = F.relu(self.inp(x))
        for b in self.blocks:
            x = x + b(x)
        return self.out(x.mean(-1))


def main():
    torch.manual_seed(7)
    with tempfile.TemporaryDirectory() as root:
        fake_corpus(root)
        train = DataLoader(Commands(root, "train"), cfg["batch"], shuffle=True, num_workers=cfg["workers"],
                           persistent_workers=True)
        val = DataLoader(Commands(root, "val"), cfg["batch"])
        net = DSCNN(cfg["n_mels"], len(cfg["words"]))
        opt = torch.optim.AdamW(net.parameters(), cfg["lr"])
        print(len(train.dataset), "training clips,", len(val.dataset), "validation clips", flush=True)
        for epoch in range(cfg["epochs"]):
            net.train()
            for n, (mel, word) in enumerate(train):
                loss = F.cross_entropy(net(mel), word)
                opt.zero_grad()
                loss.backward()
                opt.step()
            net.eval()
            with torch.no_grad():
                acc = torch.cat([(net(m).argmax(1) == w).float() for m, w in val]).mean().item()
            print(f"epoch {epoch} loss {loss.item():.3f} val acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
