# cause: rng-repeated
"""Self-supervised pretraining on ECG: reconstruct masked patches."""
import argparse
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, random_split


class RecordStore(Dataset):
    LEADS, LENGTH = 4, 1024

    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.ecg"))

    @classmethod
    def populate(cls, folder, n):
        t = np.linspace(0, 10, cls.LENGTH)
        for i in range(n):
            rate = 1 + 0.5 * np.sin(i)
            x = np.stack([np.sin(2 * np.pi * rate * t + k) ** 15 + 0.02 * np.cos(50 * t + i) for k in range(cls.LEADS)])
            (Path(folder) / f"{i:04d}.ecg").write_bytes(zlib.compress((x * 2000).astype("<i2").tobytes(), 1))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        raw = np.frombuffer(zlib.decompress(self.paths[i].read_bytes()), dtype="<i2")
        x = raw.reshape(self.LEADS, self.LENGTH).astype(np.float64) / 2000
        # baseline wander removal in the frequency domain
        for _ in range(6):
            spec = np.fft.rfft(np.pad(x, ((0, 0), (512, 512)), mode="edge"), axis=1)
            spec[:, :3] = 0
            x = np.fft.irfft(spec, axis=1)[:, 512:-512]
        x = (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-6)
        return torch.from_numpy(x.astype(np.float32))


class MaskingCollator:
    def __init__(self, patch, ratio, seed):
        self.patch = patch
        self.ratio = ratio
        self.generator = torch.Generator()
        self.generator.manual_seed(seed)

    def __call__(self, items):
        x = torch.stack(items)
        b, c, n = x.shape
        score = torch.rand(b, n // self.patch, generator=self.generator)
        hide = score < self.ratio
        full = hide.repeat_interleave(self.patch, dim=1)[:, None, :].expand(b, c, n)
        return {"input": x.masked_fill(full, 0.0), "target": x, "mask": full.float()}


class Autoencoder(nn.Module):
    def __init__(self, leads, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(leads, width, 9, padding=4), nn.GELU(), nn.Conv1d(width, width, 9, padding=4),
                                 nn.GELU(), nn.Conv1d(width, leads, 9, padding=4))

    def forward(self, x):
        return self.net(x)


class Pretrainer:
    def __init__(self, model, lr):
        self.model = model
        self.opt = optim.AdamW(model.parameters(), lr=lr)

    @staticmethod
    def criterion(pred, batch):
        err = (pred - batch["target"]) ** 2 * batch["mask"]
        return err.sum() / batch["mask"].sum().clamp(min=1)

    def epoch(self, loader, train=True):
        self.model.train(train)
        losses = []
        with torch.set_grad_enabled(train):
            for batch in loader:
                loss = self.criterion(self.model(batch["input"]), batch)
                if train:
                    self.opt.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.opt.step()
                losses.append(loss.item())
        return sum(losses) / len(losses)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--records", type=int, default=176)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--ratio", type=float, default=0.4)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with TemporaryDirectory() as tmp:
        RecordStore.populate(tmp, a.records)
        train, val = random_split(RecordStore(tmp), [a.records - 32, 32])
        opts = dict(batch_size=16, collate_fn=MaskingCollator(32, a.ratio, seed=9))
        train_loader = DataLoader(train, shuffle=True, num_workers=2, persistent_workers=True, **opts)
        val_loader = DataLoader(val, **opts)
        trainer = Pretrainer(Autoencoder(RecordStore.LEADS), 1e-3)
        for e in range(a.epochs):
            print(e, f"train {trainer.epoch(train_loader):.4f}", f"val {trainer.epoch(val_loader, False):.4f}", flush=True)
