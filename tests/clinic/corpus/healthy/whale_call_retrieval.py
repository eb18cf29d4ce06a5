# limits: nofile=256
"""Whale call retrieval: contrastive training with a clip bank, validation with per-clip restoration."""
import collections
import functools
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

SR = 4000


@dataclass(frozen=True)
class Config:
    train_clips: int = 320
    val_clips: int = 64
    batch: int = 8
    bank: int = 300
    epochs: int = 6
    workers: int = 2
    seed: int = 42


def synthesise(n, seed, seconds=2.0):
    g = np.random.default_rng(seed)
    t = np.arange(int(SR * seconds), dtype=np.float32) / SR
    out, logbook = [], []
    for i in range(n):
        f = g.uniform(80, 900)
        out.append((np.sin(2 * np.pi * f * t * (1 + 0.2 * np.sin(3 * t))) * g.uniform(0.2, 1)).astype(np.float32))
        events = [{"kind": "ship", "at": float(g.uniform(0, 2))}]
        if g.random() < 0.9:
            events.append({"kind": "call", "at": float(g.uniform(0.2, 0.8))})
        logbook.append(events)
    return out, logbook


def undo_gain(gain, spec):
    return spec / gain


def spectrogram(wav, n_fft=128, hop=32):
    frames = np.lib.stride_tricks.sliding_window_view(wav, n_fft)[::hop] * np.hanning(n_fft).astype(np.float32)
    return torch.from_numpy(np.abs(np.fft.rfft(frames, axis=1)).astype(np.float32))


class WhaleCalls(Dataset):
    def __init__(self, n, seed, train):
        self.waves, self.logbook = synthesise(n, seed)
        self.train = train
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.waves)

    def _onset(self, i):
        call = next((e for e in self.logbook[i] if e["kind"] == "call"), None)
        return 0.5 if call is None else call["at"]

    def _view(self, i):
        start = int(self._onset(i) * SR) + int(self.rng.integers(-400, 400))
        wav = self.waves[i][start:start + SR]
        return spectrogram(wav + 0.02 * self.rng.standard_normal(len(wav)).astype(np.float32))

    def __getitem__(self, i):
        if self.train:
            return {"query": self._view(i), "key": self._view(i), "clip": i}
        start = int(self._onset(i) * SR)
        wav = self.waves[i][start:start + SR]
        gain = float(1 / np.abs(wav).max())
        return {"query": spectrogram(wav * gain), "restore": functools.partial(undo_gain, gain), "clip": i}


def reseed(worker_id):
    """The base seed differs per epoch and per worker."""
    ds = get_worker_info().dataset
    ds.rng = np.random.default_rng(torch.initial_seed())


def collate_val(items):
    return torch.stack([it["query"] for it in items]), [it["restore"] for it in items], torch.tensor([it["clip"] for it in items])


class CallEncoder(nn.Module):
    def __init__(self, w=256, dim=96):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(65, w, 5, padding=2), nn.GELU(), nn.Conv1d(w, w, 5, padding=2), nn.GELU(),
                                 nn.Conv1d(w, w, 5, padding=2), nn.GELU())
        self.head = nn.Linear(w, dim)

    def forward(self, spec):
        return F.normalize(self.head(self.net(spec.transpose(1, 2)).mean(-1)), dim=-1)


class ClipBank:
    def __init__(self, size):
        self.items = collections.deque(maxlen=size)

    def push(self, spec, clip):
        self.items.append((spec.clone(), clip.clone()))

    def draw(self, k):
        pick = torch.randint(0, len(self.items), (k,)).tolist()
        return torch.cat([self.items[j][0] for j in pick]), torch.cat([self.items[j][1] for j in pick])


def train_step(net, opt, bank, batch, tau=0.1):
    q, k = net(batch["query"]), net(batch["key"])
    logits = q @ k.T / tau
    if len(bank.items) > 4:
        spec, clip = bank.draw(1)
        with torch.no_grad():
            neg = net(spec)
        logits = torch.cat([logits, (q @ neg.T / tau).masked_fill(batch["clip"][:, None] == clip[None], -1e4)], 1)
    loss = F.cross_entropy(logits, torch.arange(len(q)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    bank.push(batch["key"], batch["clip"])
    return loss.item()


@torch.no_grad()
def validate(net, loader):
    energy, found = [], []
    for spec, restore, clip in loader:
        z = net(spec)
        sim = z @ net(spec + 0.01 * torch.randn_like(spec)).T
        found.append((sim.argmax(1) == torch.arange(len(z))).float().mean().item())
        energy += [fn(s).mean().item() for fn, s in zip(restore, spec)]
    return np.mean(found), np.mean(energy)


def main(cfg=Config()):
    torch.manual_seed(cfg.seed)
    kw = dict(batch_size=cfg.batch, worker_init_fn=reseed)
    train = DataLoader(WhaleCalls(cfg.train_clips, 1, True), shuffle=True, num_workers=cfg.workers, persistent_workers=True, **kw)
    val = DataLoader(WhaleCalls(cfg.val_clips, 2, False), num_workers=1, persistent_workers=True, collate_fn=collate_val, **kw)
    net, bank = CallEncoder(), ClipBank(cfg.bank)
    opt = torch.optim.AdamW(net.parameters(), 3e-4)
    for epoch in range(cfg.epochs):
        t0 = time.time()
        losses = [train_step(net, opt, bank, b) for b in train]
        recall, energy = validate(net, val)
        print(f"epoch {epoch} loss {np.mean(losses):.4f} recall {recall:.3f} energy {energy:.3f} "
              f"bank {len(bank.items)} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
