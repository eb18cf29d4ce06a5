# cause: bad-sample
# also: rng-repeated
"""Sign language word recognition from hand keypoints."""
import argparse
import gzip
import random
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

JOINTS = 21


def record(root, split, n, signs, rng):
    folder = root / split
    folder.mkdir()
    lengths = sorted((int(v) for v in rng.integers(40, 64, n)), reverse=True)
    for k, frames in enumerate(lengths):
        label = k % signs
        t = np.linspace(0, 1, frames)[:, None, None]
        pose = np.sin(2 * np.pi * (label + 1) * t + np.arange(JOINTS)[None, :, None] / 5) + rng.normal(0, 0.1, (frames, JOINTS, 2))
        with gzip.open(folder / f"{k:04d}_{label}.kpz", "wb", compresslevel=1) as f:
            f.write(frames.to_bytes(2, "little") + pose.astype("<f4").tobytes())
    return folder


def load_clip(path):
    with gzip.open(path) as f:
        frames = int.from_bytes(f.read(2), "little")
        pose = np.frombuffer(f.read(), "<f4").reshape(frames, JOINTS, 2)
    time.sleep(0.003)
    return pose


def rotate_and_crop(pose, *, frames, dice, max_angle):
    a = np.deg2rad(dice.uniform(-max_angle, max_angle))
    rot = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]], np.float32)
    begin = int(dice.random() * (len(pose) - frames + 1))
    return pose[begin:begin + frames] @ rot


def trim_rest(pose):
    """Drop trailing frames with an odd remainder so that the temporal strides line up."""
    return pose[:len(pose) // 4 * 4]


class SignClips(Dataset):
    def __init__(self, folder, transform):
        self.paths = sorted(folder.glob("*.kpz"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        path = self.paths[i]
        pose = load_clip(path)
        pose = pose - pose[:, :1]
        x = np.ascontiguousarray(self.transform(pose).reshape(-1, JOINTS * 2), dtype=np.float32)
        return torch.from_numpy(x), int(path.stem.split("_")[1])


class Recogniser(nn.Module):
    def __init__(self, signs):
        super().__init__()
        self.rnn = nn.GRU(JOINTS * 2, 64, batch_first=True)
        self.out = nn.Linear(64, signs)

    def forward(self, x):
        return self.out(self.rnn(x)[1][-1])


def accuracy(model, loader):
    model.eval()
    hit = n = 0
    with torch.inference_mode():
        for x, y in loader:
            hit += (model(x).argmax(1) == y).sum().item()
            n += len(y)
    model.train()
    return hit / n


def main(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--signs", type=int, default=6)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--frames", type=int, default=32)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args(argv)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="signs_"))
    try:
        rng = np.random.default_rng(args.seed)
        augment = partial(rotate_and_crop, frames=args.frames, dice=random.Random(args.seed), max_angle=20)
        train = SignClips(record(root, "train", 320, args.signs, rng), augment)
        val = SignClips(record(root, "val", 60, args.signs, rng), trim_rest)
        train_loader = DataLoader(train, 16, shuffle=True, num_workers=2, persistent_workers=True)
        val_loader = DataLoader(val, 12, num_workers=2, persistent_workers=True)
        model = Recogniser(args.signs)
        opt = torch.optim.Adam(model.parameters(), 3e-3)
        for epoch in range(args.epochs):
            running = 0.0
            for x, y in train_loader:
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                running += loss.item()
            print(f"epoch {epoch} loss {running / len(train_loader):.3f}", flush=True)
            print(f"epoch {epoch} accuracy {accuracy(model, val_loader):.3f}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
