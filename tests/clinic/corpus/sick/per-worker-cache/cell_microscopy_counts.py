# cause: per-worker-cache
# also: worker-out-of-memory
# limits: memory=1G
"""Counts nuclei in fluorescence micrographs (regression), PNG files decoded and background corrected."""
import argparse
import functools
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

EDGE = 288


def acquire_plate(folder, wells):
    """Writes a synthetic plate: one PNG per well, named with its count."""
    rng = np.random.default_rng(7)
    yy, xx = np.mgrid[:9, :9] - 4
    for well in range(wells):
        count = int(rng.integers(5, 60))
        image = np.full((EDGE, EDGE, 3), 12, np.uint8)
        for y, x in rng.integers(10, EDGE - 10, (count, 2)):
            radius = rng.uniform(2.5, 4.5)
            disc = (yy**2 + xx**2) < radius**2
            image[y - 4:y + 5, x - 4:x + 5, rng.integers(0, 3)][disc] = rng.integers(120, 250)
        Image.fromarray(image).save(folder / f"well{well:04d}_{count}.png", compress_level=1)
    return sorted(folder.glob("*.png"))


def remembered(method):
    """Keeps what a method computed, by its arguments, with the object."""
    name = f"_{method.__name__}_known"

    @functools.wraps(method)
    def wrapper(self, *key):
        known = self.__dict__.setdefault(name, {})
        if key not in known:
            known[key] = method(self, *key)
        return known[key]

    return wrapper


class Plate(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    @remembered
    def corrected(self, path):
        """Flat field correction, which needs a wide blur and so takes its time."""
        with Image.open(path) as picture:
            picture.load()
        field = picture.filter(ImageFilter.GaussianBlur(20))
        raw = np.asarray(picture, np.float32) - np.asarray(field, np.float32)
        raw /= raw.std() + 1e-3
        return np.ascontiguousarray(raw.transpose(2, 0, 1))

    def __getitem__(self, index):
        path = self.files[index]
        image = self.corrected(path)
        turn = int(torch.randint(4, ()))
        image = np.rot90(image, turn, (1, 2))
        gain = np.float32(np.random.uniform(0.9, 1.1))
        count = float(path.stem.rsplit("_", 1)[1])
        return torch.from_numpy(image * gain), torch.tensor(count)


class Counter(nn.Module):
    """Density map whose sum is the count."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 12, 5, stride=3, padding=2), nn.ReLU(),
            nn.Conv2d(12, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 1, 1), nn.Softplus())

    def forward(self, x):
        return self.net(x).sum((1, 2, 3)) * 0.05


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wells", type=int, default=520)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--checkpoint", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="plate") as folder:
        plate = Plate(acquire_plate(Path(folder), args.wells))
        train, val = random_split(plate, [0.9, 0.1])
        train_loader = DataLoader(train, args.batch_size, shuffle=True, num_workers=2, persistent_workers=True)
        val_loader = DataLoader(val, args.batch_size)
        model = Counter()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        best = float("inf")
        for epoch in range(args.epochs):
            for image, count in train_loader:
                loss = nn.functional.smooth_l1_loss(model(image), count)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                error = torch.cat([(model(image) - count).abs() for image, count in val_loader]).mean().item()
            model.train()
            print(f"epoch {epoch}: mean absolute error {error:.2f} nuclei", flush=True)
            if error < best:
                best = error
                if args.checkpoint:
                    torch.save(model.state_dict(), args.checkpoint)


if __name__ == "__main__":
    main()
