# cause: shm-exhausted
# limits: shm=64M
# arguments: --epochs 2
import argparse
import io
import struct
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

HEADER = struct.Struct("<HHI")


def write_archive(fh, n, rng):
    """Scenes of varying size, one after another: header, raw pixels, boxes."""
    offsets = []
    for _ in range(n):
        h, w = (int(v) for v in rng.integers(620, 820, 2))
        k = int(rng.integers(1, 6))
        offsets.append(fh.tell())
        fh.write(HEADER.pack(h, w, k))
        fh.write(rng.integers(0, 256, (h // 4, w // 4, 3), dtype=np.uint8).tobytes())
        boxes = rng.random((k, 4), dtype=np.float32)
        fh.write(boxes.tobytes())
    return offsets


class AerialScenes(Dataset):
    def __init__(self, path, offsets):
        self.path, self.offsets = path, offsets

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, i):
        with open(self.path, "rb") as fh:
            fh.seek(self.offsets[i])
            h, w, k = HEADER.unpack(fh.read(HEADER.size))
            thumb = np.frombuffer(fh.read((h // 4) * (w // 4) * 3), np.uint8).reshape(h // 4, w // 4, 3)
            boxes = np.frombuffer(fh.read(16 * k), np.float32).reshape(k, 4)
        image = torch.tensor(thumb, dtype=torch.float32).permute(2, 0, 1) / 255
        image = F.interpolate(image[None], size=(h, w), mode="bilinear")[0]
        return image, {"boxes": torch.tensor(boxes), "scene": i}


@dataclass
class DetectionBatcher:
    """Images have different sizes, so they are kept in a list."""
    mean: float = 0.45
    std: float = 0.22

    def __call__(self, samples):
        images = [(im - self.mean) / self.std for im, _ in samples]
        return images, [t for _, t in samples]


class Detector(nn.Module):
    def __init__(self, queries=8):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 12, 7, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(6), nn.Flatten())
        self.head = nn.Linear(12 * 36, queries * 4)
        self.queries = queries

    def forward(self, images):
        feats = torch.cat([self.backbone(im[None]) for im in images])
        return self.head(feats).view(len(images), self.queries, 4).sigmoid()


def matching_loss(pred, targets):
    total = pred.new_zeros(())
    for p, t in zip(pred, targets):
        d = torch.cdist(p, t["boxes"], p=1)
        total = total + d.min(0).values.mean() + 0.1 * d.min(1).values.mean()
    return total / len(targets)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--scenes", type=int, default=72)
    args = ap.parse_args()
    torch.manual_seed(3)
    with tempfile.NamedTemporaryFile(suffix=".scn") as tmp:
        buf = io.BytesIO()
        offsets = write_archive(buf, args.scenes, np.random.default_rng(3))
        tmp.write(buf.getvalue())
        tmp.flush()
        loader = DataLoader(AerialScenes(tmp.name, offsets), batch_size=4, shuffle=True,
                            num_workers=args.workers, collate_fn=DetectionBatcher())
        net = Detector()
        opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        for epoch in range(args.epochs):
            running = 0.0
            for images, targets in loader:
                loss = matching_loss(net(images), targets)
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 5.0)
                opt.step()
                running += loss.item()
            print(f"epoch {epoch}: loss {running / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
