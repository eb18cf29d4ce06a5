# cause: handle-shared-across-fork
# speaker identification, utterances come as one tar per corpus
import io
import os
import tarfile
import tempfile
import time
import wave

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

SR = 16000
N_SPK = 12
UTTS = 50
EPOCHS = 6
BATCH = 20
WORKERS = 4


def voice(rng, spk):
    n = int(SR * rng.uniform(0.9, 1.6))
    t = np.arange(n) / SR
    f0 = 90 + 14 * spk
    sig = sum(np.sin(2 * np.pi * f0 * h * t + rng.uniform(0, 6)) / h for h in range(1, 9))
    sig = sig * 0.15 + 0.02 * rng.standard_normal(n)
    return (np.clip(sig, -1, 1) * 32000).astype("<i2")


def make_corpus(path):
    rng = np.random.default_rng(1)
    with tarfile.open(path, "w") as tar:
        for u in range(UTTS):
            for spk in range(N_SPK):
                buf = io.BytesIO()
                with wave.open(buf, "wb") as w:
                    w.setnchannels(1)
                    w.setsampwidth(2)
                    w.setframerate(SR)
                    w.writeframes(voice(rng, spk).tobytes())
                info = tarfile.TarInfo(f"spk{spk:02d}/utt{u:03d}.wav")
                info.size = buf.tell()
                buf.seek(0)
                tar.addfile(info, buf)


class TarUtterances(Dataset):
    def __init__(self, path, keep, crop=SR * 3 // 4):
        self.tar = tarfile.open(path)
        self.members = [m for m in self.tar.getmembers() if m.name.endswith(".wav") and keep(m.name)]
        self.speakers = [int(m.name[3:5]) for m in self.members]
        self.crop = crop
        self.window = torch.hann_window(400)

    def __len__(self):
        return len(self.members)

    def __getitem__(self, i):
        with wave.open(self.tar.extractfile(self.members[i]), "rb") as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), "<i2")
        x = torch.from_numpy(pcm.astype(np.float32) / 32768)
        off = int(torch.randint(0, max(1, len(x) - self.crop), ()))
        x = x[off:off + self.crop]
        spec = torch.stft(x, 512, 160, 400, self.window, return_complex=True).abs()
        return torch.log(spec[:160] + 1e-4), self.speakers[i]


class StatsPool(nn.Module):
    def forward(self, h):
        return torch.cat([h.mean(-1), h.std(-1)], 1)


tmp = tempfile.mkdtemp()
corpus = os.path.join(tmp, "corpus.tar")
make_corpus(corpus)
train_set = TarUtterances(corpus, lambda n: int(n[9:12]) >= 8)
test_set = TarUtterances(corpus, lambda n: int(n[9:12]) < 8)
freq = np.bincount(train_set.speakers)
sampler = WeightedRandomSampler([1 / freq[s] for s in train_set.speakers], len(train_set))
train_loader = DataLoader(train_set, BATCH, sampler=sampler, num_workers=WORKERS, persistent_workers=True)
test_loader = DataLoader(test_set, BATCH)

net = nn.Sequential(
    nn.Conv1d(160, 96, 5), nn.ReLU(), nn.Conv1d(96, 96, 3, dilation=2), nn.ReLU(),
    StatsPool(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, N_SPK))
opt = torch.optim.Adam(net.parameters(), 1e-3)
ce = nn.CrossEntropyLoss()

best = 0
for epoch in range(EPOCHS):
    t0, seen = time.time(), 0
    for feats, spk in train_loader:
        opt.zero_grad()
        loss = ce(net(feats), spk)
        loss.backward()
        opt.step()
        seen += len(spk)
    with torch.no_grad():
        acc = np.mean([(net(f).argmax(1) == s).float().mean().item() for f, s in test_loader])
    if acc > best:
        best = acc
        torch.save(net.state_dict(), os.path.join(tmp, "best.pt"))
    print(f"epoch {epoch}: {seen} utts in {time.time() - t0:.1f}s  loss {loss.item():.3f}  acc {acc:.3f}", flush=True)
print("best", best)
