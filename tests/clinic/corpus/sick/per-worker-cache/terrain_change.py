# cause: per-worker-cache
"""Change detection between two passes of an aerial survey.

Each scene is stored as a compressed elevation + reflectance block; training draws random windows out of pairs of passes.
"""
import argparse
import atexit
import functools
import json
import shutil
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 768


def write_survey(root, scenes):
    rng = np.random.default_rng(0)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32) / 60
    manifest = []
    for s in range(scenes):
        for visit in ("a", "b"):
            ground = np.sin(yy * (1 + s % 5)) + np.cos(xx * (1 + s % 3))
            if visit == "b":
                ground[200:500, 100:400] += 1.5
            levels = ((ground - ground.min()) * 20).astype(np.uint8)
            name = f"scene{s:03d}{visit}.blk"
            (root / name).write_bytes(zlib.compress(levels.tobytes(), 1))
        manifest.append({"scene": s, "before": f"scene{s:03d}a.blk", "after": f"scene{s:03d}b.blk"})
    (root / "manifest.json").write_text(json.dumps(manifest))


@functools.cache
def open_block(path):
    levels = np.frombuffer(zlib.decompress(Path(path).read_bytes()), dtype=np.uint8).reshape(SIDE, SIDE)
    height = levels.astype(np.float32) / 20
    slope = np.gradient(height)
    return np.stack([height, slope[0].astype(np.float32), slope[1].astype(np.float32)])


def jitter(image, amount):
    return image + amount * torch.randn(1).item()


class SurveyWindows(Dataset):
    def __init__(self, root, windows_per_scene, crop):
        self.root = Path(root)
        self.entries = json.loads((self.root / "manifest.json").read_text())
        self.per_scene = windows_per_scene
        self.crop = crop

    def __len__(self):
        return len(self.entries) * self.per_scene

    def __getitem__(self, i):
        entry = self.entries[i % len(self.entries)]
        y, x = torch.randint(0, SIDE - self.crop, (2,)).tolist()
        cut = (slice(None), slice(y, y + self.crop), slice(x, x + self.crop))
        before = open_block(str(self.root / entry["before"]))[cut]
        after = open_block(str(self.root / entry["after"]))[cut]
        changed = (np.abs(after[0] - before[0]) > 0.5).astype(np.float32)
        both = torch.from_numpy(np.concatenate([jitter(before, 0.05), jitter(after, 0.05)]).astype(np.float32))
        return both, torch.from_numpy(changed)


class Differ(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(6, 12, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(12, 1, 3, padding=1))
        self.up = nn.Upsample(scale_factor=2)

    def forward(self, x):
        return self.up(self.body(x))[:, 0]


def run(args):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="survey"))
    atexit.register(shutil.rmtree, root, True)
    write_survey(root, args.scenes)
    loader = DataLoader(SurveyWindows(root, 8, 64), batch_size=8, shuffle=True, num_workers=args.workers,
                        persistent_workers=True)
    net = Differ()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    loss_of = nn.BCEWithLogitsLoss()
    for epoch in range(args.epochs):
        begin, total = time.time(), 0.0
        for x, y in loader:
            loss = loss_of(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(args.device_ms / 1000)
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f} in {time.time() - begin:.1f}s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=int, default=36)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--device-ms", type=float, default=25)
    run(parser.parse_args())
