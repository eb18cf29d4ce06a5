# cause: exception-type-lost
# also: dataset-raises
"""Phase recognition in surgical videos; clips that cannot be decoded are skipped and written to a report."""
import argparse
import json
import struct
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAGIC = b"SVC1"
PHASES = 6


class ClipDecodeError(Exception):
    def __init__(self, path, frame, reason):
        super().__init__(f"{path}: frame {frame}: {reason}")
        self.path, self.frame, self.reason = str(path), frame, reason


def encode_clip(path, frames, truncated_at=None):
    with open(path, "wb") as f:
        f.write(MAGIC + struct.pack("<HHH", *frames.shape))
        for k, frame in enumerate(frames):
            blob = zlib.compress(frame.tobytes(), 1)
            if k == truncated_at:
                blob = blob[: len(blob) // 2]
            f.write(struct.pack("<I", len(blob)) + blob)


def decode_clip(path):
    raw = Path(path).read_bytes()
    if raw[:4] != MAGIC:
        raise ClipDecodeError(path, -1, "not a clip")
    t, h, w = struct.unpack_from("<HHH", raw, 4)
    out, pos = np.empty((t, h, w), np.uint8), 10
    for k in range(t):
        (n,) = struct.unpack_from("<I", raw, pos)
        try:
            out[k] = np.frombuffer(zlib.decompress(raw[pos + 4:pos + 4 + n]), np.uint8).reshape(h, w)
        except (zlib.error, ValueError) as e:
            raise ClipDecodeError(path, k, str(e)) from e
        pos += 4 + n
    return out


def record_operations(root, n=260, t=8, side=48):
    g = np.random.default_rng(9)
    rows = []
    for i in range(n):
        phase = int(g.integers(PHASES))
        scene = g.integers(0, 120, size=(side, side)).astype(np.uint8)
        frames = np.stack([np.roll(scene, k * phase, axis=1) for k in range(t)])
        path = Path(root) / f"op{i // 20:02d}_clip{i:04d}.svc"
        encode_clip(path, frames, truncated_at=5 if i in (57, 143, 206) else None)
        rows.append({"path": str(path), "phase": phase})
    return rows


class SurgicalClips(Dataset):
    def __init__(self, rows, train):
        self.rows, self.train = rows, train

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        clip = torch.from_numpy(decode_clip(row["path"])).float().div_(127.5).sub_(1)
        if self.train and torch.rand(()) < 0.5:
            clip = clip.flip(1)
        return clip[None], row["phase"]


class PhaseNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.features = nn.Sequential(nn.Conv3d(1, w, 3, (1, 2, 2), 1), nn.ReLU(), nn.Conv3d(w, 2 * w, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(2 * w, PHASES)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3, 4)))


class SkippingIterator:
    """Goes through a loader and leaves out the batches with a damaged clip."""

    def __init__(self, loader, report):
        self.loader, self.report = loader, report

    def __iter__(self):
        it = iter(self.loader)
        while True:
            try:
                yield next(it)
            except StopIteration:
                return
            except ClipDecodeError as e:
                self.report.append({"error": str(e)})


def accuracy(net, batches):
    net.eval()
    hits = n = 0
    with torch.no_grad():
        for x, y in batches:
            hits += (net(x).argmax(1) == y).sum().item()
            n += len(y)
    return hits / max(n, 1)


def main(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args(argv)
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory() as root:
        rows = record_operations(root)
        report = []
        kw = dict(batch_size=args.batch, num_workers=args.workers, persistent_workers=args.workers > 0)
        train = SkippingIterator(DataLoader(SurgicalClips(rows[:220], True), shuffle=True, **kw), report)
        val = SkippingIterator(DataLoader(SurgicalClips(rows[220:], False), **kw), report)
        net = PhaseNet()
        opt = torch.optim.AdamW(net.parameters(), 1e-3)
        for epoch in range(args.epochs):
            t0 = time.time()
            net.train()
            for x, y in train:
                loss = F.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            acc = accuracy(net, val)
            (Path(root) / "damaged.json").write_text(json.dumps(report))
            print(f"epoch {epoch} loss {loss.item():.3f} acc {acc:.3f} skipped {len(report)} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
