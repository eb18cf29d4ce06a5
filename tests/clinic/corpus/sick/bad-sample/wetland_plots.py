# cause: bad-sample
"""Plant cover per survey plot. A plot has a photograph and a table of cover values; some plots were also measured with a probe."""
import argparse
import io
import random
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

SPECIES = 6


def survey(folder: Path, plots: int):
    rng = np.random.default_rng(23)
    for k in range(plots):
        cover = rng.dirichlet(np.ones(SPECIES)).astype(np.float32)
        image = rng.integers(0, 60, (64, 64, 3)) + (cover[:3] * 190)
        png = io.BytesIO()
        Image.fromarray(image.astype(np.uint8)).save(png, "PNG")
        with zipfile.ZipFile(folder / f"plot{k:04d}.zip", "w") as z:
            z.writestr("photo.png", png.getvalue())
            z.writestr("cover.txt", " ".join(f"{c:.4f}" for c in cover))
            z.writestr("probe.txt", f"{rng.normal(7, 0.4):.2f} {rng.normal(18, 3):.1f}")
            if k == 217:
                z.writestr("note.txt", "probe lost in the mud, plot repeated in spring")


class Plot:
    """One plot's archive, opened for the time of a read."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.zip.close()

    def photo(self):
        with self.zip.open("photo.png") as f:
            return np.asarray(Image.open(f).convert("RGB"))

    def floats(self, name):
        return torch.tensor([float(v) for v in self.zip.read(name).split()])

    def notes(self):
        return "note.txt" in self.zip.namelist()


class Plots(Dataset):
    def __init__(self, folder, steps=()):
        self.paths = sorted(Path(folder).glob("*.zip"))
        self.steps = steps

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        time.sleep(0.002)
        sample = {}
        with Plot(self.paths[i]) as plot:
            sample["photo"] = torch.from_numpy(plot.photo().copy()).permute(2, 0, 1).float() / 255
            sample["cover"] = plot.floats("cover.txt")
            if not plot.notes():
                sample["probe"] = plot.floats("probe.txt")
        for step in self.steps:
            sample = step(sample)
        return sample


def flip(sample):
    if random.random() < 0.5:
        sample["photo"] = sample["photo"].flip(-1)
    return sample


def scale_probe(sample):
    return {k: (v - torch.tensor([7.0, 18.0])) / torch.tensor([0.4, 3.0]) if k == "probe" else v for k, v in sample.items()}


class CoverNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(128 + 2, SPECIES)

    def forward(self, photo, probe):
        return self.head(torch.cat([self.conv(photo), probe], 1)).log_softmax(1)


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        errs = [(model(b["photo"], b["probe"]).exp() - b["cover"]).abs().mean().item() for b in loader]
    model.train()
    return float(np.mean(errs))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--plots", type=int, default=300)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        survey(Path(tmp), args.plots)
        train, val = random_split(Plots(tmp, (flip, scale_probe)), [0.85, 0.15], generator=torch.Generator().manual_seed(1))
        loader = DataLoader(train, 12, shuffle=True, num_workers=args.workers, persistent_workers=True)
        val_loader = DataLoader(val, 16)
        model = CoverNet()
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        for epoch in range(args.epochs):
            for b in loader:
                loss = nn.functional.kl_div(model(b["photo"], b["probe"]), b["cover"], reduction="batchmean")
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(f"epoch {epoch}: train {loss.item():.4f} val error {evaluate(model, val_loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
