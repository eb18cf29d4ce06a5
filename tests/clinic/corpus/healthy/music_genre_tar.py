# music genre classification, the clips of each fold come as one tar
import io
import os
import tarfile
import tempfile
import time
import wave

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

SR = 16000
GENRES = ["ambient", "chiptune", "drone", "techno", "waltz", "noise"]
PER_FOLD = 90
EPOCHS = 6
BATCH = 15
WORKERS = 2


def play(rng, genre):
    n = int(SR * rng.uniform(1.0, 1.4))
    t = np.arange(n) / SR
    beat = 2 + genre * 1.3
    carrier = np.sign(np.sin(2 * np.pi * (110 + 60 * genre) * t)) if genre % 2 else np.sin(2 * np.pi * 220 * t)
    sig = 0.3 * carrier * (0.5 + 0.5 * np.sin(2 * np.pi * beat * t)) + 0.05 * rng.standard_normal(n)
    return (np.clip(sig, -1, 1) * 32000).astype("<i2")


def make_fold(path, seed):
    rng = np.random.default_rng(seed)
    with tarfile.open(path, "w") as tar:
        for k in range(PER_FOLD):
            g = k % len(GENRES)
            buf = io.BytesIO()
            with wave.open(buf, "wb") as w:
                w.setnchannels(1)
                w.setsampwidth(2)
                w.setframerate(SR)
                w.writeframes(play(rng, g).tobytes())
            info = tarfile.TarInfo(f"{GENRES[g]}/{k:04d}.wav")
            info.size = buf.tell()
            buf.seek(0)
            tar.addfile(info, buf)


class TarClips(Dataset):
    def __init__(self, path, crop=SR * 7 // 8):
        self.path = path
        self.tar = tarfile.open(path)          # needed here for the table of contents
        self.owner = os.getpid()
        self.members = [m for m in self.tar.getmembers() if m.name.endswith(".wav")]
        self.genre = [GENRES.index(m.name.split("/")[0]) for m in self.members]
        self.crop = crop
        self.window = torch.hann_window(400)

    def archive(self):
        if self.owner != os.getpid():
            self.tar = tarfile.open(self.path)
            self.owner = os.getpid()
        return self.tar

    def __len__(self):
        return len(self.members)

    def __getitem__(self, i):
        with wave.open(self.archive().extractfile(self.members[i]), "rb") as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), "<i2")
        x = torch.from_numpy(pcm.astype(np.float32) / 32768)
        off = int(torch.randint(0, max(1, len(x) - self.crop), ()))
        x = x[off:off + self.crop]
        spec = torch.stft(x, 512, 160, 400, self.window, return_complex=True).abs()
        return torch.log(spec[:192] + 1e-4), self.genre[i]


class StatsPool(nn.Module):
    def forward(self, h):
        return torch.cat([h.mean(-1), h.std(-1)], 1)


torch.set_num_threads(1)
tmp = tempfile.mkdtemp()
folds = [os.path.join(tmp, f"fold{k}.tar") for k in range(5)]
for k, path in enumerate(folds):
    make_fold(path, seed=k)
train_set = ConcatDataset([TarClips(p) for p in folds[:4]])
test_set = TarClips(folds[4])
train_loader = DataLoader(train_set, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)
test_loader = DataLoader(test_set, BATCH)

net = nn.Sequential(
    nn.Conv1d(192, 384, 5), nn.ReLU(), nn.Conv1d(384, 384, 5, dilation=2), nn.ReLU(),
    nn.Conv1d(384, 384, 3, dilation=3), nn.ReLU(), StatsPool(), nn.Linear(768, 96), nn.ReLU(),
    nn.Linear(96, len(GENRES)))
opt = torch.optim.Adam(net.parameters(), 5e-4)
ce = nn.CrossEntropyLoss()

best = 0
for epoch in range(EPOCHS):
    t0, seen, right = time.time(), 0, 0
    for feats, genre in train_loader:
        opt.zero_grad()
        out = net(feats)
        loss = ce(out, genre)
        loss.backward()
        opt.step()
        seen += len(genre)
        right += (out.argmax(1) == genre).sum().item()
    with torch.no_grad():
        acc = np.mean([(net(f).argmax(1) == g).float().mean().item() for f, g in test_loader])
    if acc > best:
        best = acc
        torch.save(net.state_dict(), os.path.join(tmp, "best.pt"))
    print(f"epoch {epoch}: {seen} clips in {time.time() - t0:.1f}s  train {right / seen:.3f}  test {acc:.3f}", flush=True)
print("best", best)
