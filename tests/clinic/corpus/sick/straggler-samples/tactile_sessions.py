# cause: straggler-samples
"""Texture recognition from a tactile finger: vibration clips grouped in recording sessions."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class ClipUnavailable(OSError):
    pass


class SessionArchive:
    """Clips by (session, clip). The recorder re-indexes some clips lazily: the first attempts on them fail."""

    def __init__(self, n_sessions, clips_per_session, n_textures, seed=0):
        rng = np.random.default_rng(seed)
        self.shape = (n_sessions, clips_per_session)
        self.texture = rng.integers(0, n_textures, self.shape)
        self.unindexed = {(s, int(rng.integers(clips_per_session))) for s in range(n_sessions)}

    def read(self, session, clip, attempt):
        if (session, clip) in self.unindexed and attempt < 3:
            raise ClipUnavailable(f"session {session} clip {clip}: index not ready")
        rng = np.random.default_rng(session * 10_000 + clip)
        k = self.texture[session, clip]
        t = np.linspace(0, 1, 4096, dtype=np.float32)
        return np.sin(2 * np.pi * (60 + 35 * k) * t) + 0.3 * rng.standard_normal(4096, dtype=np.float32)


class TactileClips(Dataset):
    def __init__(self, archive, backoff=0.1):
        self.archive, self.backoff = archive, backoff

    def __len__(self):
        return int(np.prod(self.archive.shape))

    def fetch(self, session, clip):
        for attempt in range(5):
            try:
                return self.archive.read(session, clip, attempt)
            except ClipUnavailable:
                time.sleep(self.backoff * 2 ** attempt)
        raise ClipUnavailable(f"gave up on session {session} clip {clip}")

    def spectrum(self, wav):
        frames = np.lib.stride_tricks.sliding_window_view(wav, 256)[::32]
        mag = np.abs(np.fft.rfft(frames * np.hanning(256), axis=1))[:, :64]
        return torch.from_numpy(np.log1p(mag).astype(np.float32).T)

    def __getitem__(self, i):
        session, clip = divmod(i, self.archive.shape[1])
        return self.spectrum(self.fetch(session, clip)), int(self.archive.texture[session, clip])


class SessionShuffle(Sampler):
    """Sessions in random order, clips shuffled inside a session."""

    def __init__(self, n_sessions, clips_per_session):
        self.n, self.k = n_sessions, clips_per_session

    def __len__(self):
        return self.n * self.k

    def __iter__(self):
        for s in torch.randperm(self.n).tolist():
            for c in torch.randperm(self.k).tolist():
                yield s * self.k + c


def build_model(n_textures):
    return nn.Sequential(nn.Conv1d(64, 32, 5, stride=2), nn.ReLU(), nn.Conv1d(32, 32, 5, stride=2), nn.ReLU(),
                         nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, n_textures))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sessions", type=int, default=10)
    ap.add_argument("--clips", type=int, default=320)
    ap.add_argument("--textures", type=int, default=6)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=4)
    args = ap.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    archive = SessionArchive(args.sessions, args.clips, args.textures)
    loader = DataLoader(TactileClips(archive), batch_size=args.batch_size,
                        sampler=SessionShuffle(args.sessions, args.clips),
                        num_workers=4, persistent_workers=True)
    model = build_model(args.textures)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
    for epoch in range(args.epochs):
        t0, hits, n = time.time(), 0, 0
        for x, y in loader:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            hits += (logits.argmax(1) == y).sum().item()
            n += len(y)
        sched.step()
        print(f"epoch {epoch}: acc {hits / n:.3f} in {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
