# cause: worker-segfault
"""Tremor detection in continuous strain records. Records come in pages; a page's frames overlap and are never copied out."""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HEADER = np.dtype([("magic", "S4"), ("rate", "<u4"), ("frames", "<u4"), ("label", "<u4")])
FRAME, HOP, PICK = 256, 64, 24


def write_pages(folder: Path, count: int):
    rng = np.random.default_rng(31)
    for k in range(count):
        label = int(rng.random() < 0.5)
        frames = int(rng.integers(60, 120))
        n = FRAME + HOP * (frames - 1)
        trace = rng.normal(0, 300, n) + label * 500 * np.sin(np.arange(n) * 0.21)
        head = np.zeros((), HEADER)
        head["magic"], head["rate"], head["label"] = b"STRN", 100, label
        head["frames"] = frames if k != 288 else frames << 24
        (folder / f"{k:05d}.page").write_bytes(head.tobytes() + trace.astype("<i2").tobytes())


class Page:
    def __init__(self, path: Path):
        self.raw = path.read_bytes()
        self.head = np.frombuffer(self.raw, HEADER, 1)[0]
        if self.head["magic"] != b"STRN":
            raise ValueError(f"{path} is not a strain page")

    @property
    def frames(self):
        trace = np.frombuffer(self.raw, "<i2", offset=HEADER.itemsize)
        return np.lib.stride_tricks.as_strided(trace, (int(self.head["frames"]), FRAME), (HOP * 2, 2), writeable=False)


class Spectra:
    def __init__(self, bands):
        self.window = np.hanning(FRAME)
        self.edges = np.linspace(0, FRAME // 2, bands + 1).astype(int)

    def __call__(self, frames):
        power = np.abs(np.fft.rfft(frames * self.window, axis=1)) ** 2
        return np.log1p(np.add.reduceat(power[:, : FRAME // 2], self.edges[:-1], axis=1)).astype(np.float32)


class Pages(Dataset):
    def __init__(self, folder: Path, transform, pick=PICK):
        self.paths = sorted(folder.glob("*.page"))
        self.transform, self.pick = transform, pick

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        page = Page(self.paths[i])
        time.sleep(0.003)
        rows = np.linspace(0, len(page.frames) - 1, self.pick).astype(np.int64)
        return torch.from_numpy(self.transform(page.frames[rows])), float(page.head["label"])


class Detector(nn.Module):
    def __init__(self, bands):
        super().__init__()
        self.norm = nn.BatchNorm1d(bands)
        self.conv = nn.Sequential(nn.Conv1d(bands, 48, 3, padding=1), nn.ReLU(), nn.Conv1d(48, 48, 3, padding=1), nn.ReLU())
        self.out = nn.Linear(48, 1)

    def forward(self, x):
        return self.out(self.conv(self.norm(x.transpose(1, 2))).mean(-1)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pages", type=int, default=480)
    ap.add_argument("--bands", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--accumulate", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        write_pages(Path(tmp), args.pages)
        loader = DataLoader(Pages(Path(tmp), Spectra(args.bands)), batch_size=12, shuffle=True, num_workers=3, persistent_workers=True, drop_last=True)
        model = Detector(args.bands)
        opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        for epoch in range(args.epochs):
            running = 0.0
            for step, (x, y) in enumerate(loader, 1):
                loss = nn.functional.binary_cross_entropy_with_logits(model(x), y.float())
                (loss / args.accumulate).backward()
                if step % args.accumulate == 0:
                    opt.step()
                    opt.zero_grad()
                running += loss.item()
            print(f"epoch {epoch}: loss {running / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
