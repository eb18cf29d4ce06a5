# cause: shm-exhausted
# limits: shm=64M
"""Abundance estimation on synthetic hyperspectral scenes (linear unmixing with a small 1x1 conv net)."""
import argparse
import shutil
import struct
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAGIC = b"HSC1"
ENDMEMBERS = 5


@dataclass
class Scene:
    cube: torch.Tensor        # bands x h x w
    abundance: torch.Tensor   # endmembers x h x w
    name: str


@dataclass
class SceneBatch:
    """Scenes keep their own extent, the network is fully convolutional."""
    scenes: list

    def __iter__(self):
        return iter(self.scenes)

    def __len__(self):
        return len(self.scenes)


def write_scene(path, rng, bands):
    h, w = (int(rng.integers(120, 168)) for _ in range(2))
    spectra = np.abs(rng.normal(size=(bands, ENDMEMBERS))).astype(np.float32)
    weights = rng.dirichlet(np.ones(ENDMEMBERS), size=h * w).astype(np.float16)
    body = zlib.compress(spectra.tobytes() + weights.tobytes(), 1)
    path.write_bytes(MAGIC + struct.pack("<III", bands, h, w) + body)


def read_scene(path):
    raw = path.read_bytes()
    if raw[:4] != MAGIC:
        raise ValueError(f"{path} is not a scene")
    bands, h, w = struct.unpack("<III", raw[4:16])
    body = zlib.decompress(raw[16:])
    cut = bands * ENDMEMBERS * 4
    spectra = np.frombuffer(body[:cut], np.float32).reshape(bands, ENDMEMBERS)
    weights = np.frombuffer(body[cut:], np.float16).reshape(h * w, ENDMEMBERS).astype(np.float32)
    cube = (spectra @ weights.T).reshape(bands, h, w)
    return cube, weights.T.reshape(ENDMEMBERS, h, w).copy()


class SceneFolder(Dataset):
    def __init__(self, root, repeat=1):
        self.files = sorted(Path(root).glob("*.hsc")) * repeat

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        cube, abundance = read_scene(self.files[index])
        cube = (cube - cube.mean()) / (cube.std() + 1e-6)
        return Scene(torch.from_numpy(cube), torch.from_numpy(abundance), self.files[index].stem)


class Unmixer(nn.Module):
    def __init__(self, bands):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(bands, 16, 1), nn.ReLU(), nn.Conv2d(16, ENDMEMBERS, 1))

    def forward(self, x):
        return self.net(x).softmax(1)


def train(args, root):
    data = SceneFolder(root, repeat=2)
    loader = DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=args.workers,
                        collate_fn=SceneBatch, persistent_workers=True)
    model = Unmixer(args.bands)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        total = 0.0
        for step, batch in enumerate(loader):
            loss = sum((model(s.cube[None]) - s.abundance[None]).abs().mean() for s in batch) / len(batch)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch}: mean loss {total / len(loader):.4f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--bands", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    root = Path(tempfile.mkdtemp(prefix="hsc"))
    try:
        rng = np.random.default_rng(1)
        for i in range(16):
            write_scene(root / f"scene{i:03d}.hsc", rng, args.bands)
        train(args, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
