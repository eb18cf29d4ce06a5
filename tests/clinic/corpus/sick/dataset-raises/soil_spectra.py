# cause: dataset-raises
# arguments: --epochs 2
"""Predict soil organic carbon from near-infrared spectra, one campaign folder per year."""
import argparse
import json
import shutil
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, random_split

BANDS = 256


def write_campaign(root: Path, year: int, count: int, rng: np.random.Generator) -> Path:
    folder = root / str(year)
    folder.mkdir()
    meta = {}
    for k in range(count):
        carbon = float(rng.uniform(0.2, 6.0))
        base = np.linspace(0.2, 0.8, BANDS) + 0.05 * carbon * np.sin(np.arange(BANDS) / 17)
        scans = (base + rng.normal(0, 0.01, (12, BANDS))).astype("<f4")
        payload = scans.tobytes()
        if year == 2021 and k == 61:
            payload = payload[:-1023]
        (folder / f"core_{k:03d}.nir").write_bytes(zlib.compress(payload, 1))
        meta[f"core_{k:03d}"] = carbon
    (folder / "labels.json").write_text(json.dumps(meta))
    return folder


class SavitzkyLike:
    """Local quadratic fit, done the slow and obvious way."""

    def __init__(self, half=5):
        t = np.arange(-half, half + 1)
        self.half = half
        self.weights = np.linalg.pinv(np.vander(t, 3))[2]

    def __call__(self, spectrum):
        padded = np.pad(spectrum, self.half, mode="edge")
        return np.array([padded[i:i + 2 * self.half + 1] @ self.weights for i in range(len(spectrum))])


class Campaign(Dataset):
    def __init__(self, folder: Path, smooth):
        self.folder = folder
        self.smooth = smooth
        self.labels = json.loads((folder / "labels.json").read_text())
        self.names = sorted(self.labels)

    def __len__(self):
        return len(self.names)

    def _scans(self, name):
        raw = zlib.decompress((self.folder / f"{name}.nir").read_bytes())
        time.sleep(0.002)
        return np.frombuffer(raw, dtype="<f4").reshape(-1, BANDS)

    def __getitem__(self, i):
        name = self.names[i]
        spectrum = self.smooth(self._scans(name).mean(axis=0))
        spectrum = (spectrum - spectrum.mean()) / (spectrum.std() + 1e-6)
        return torch.tensor(spectrum, dtype=torch.float32), torch.tensor(self.labels[name])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 32, 9, stride=2), nn.ReLU(), nn.Conv1d(32, 64, 9, stride=2), nn.ReLU(),
                                  nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(512, 1))

    def forward(self, x):
        return self.body(x[:, None]).squeeze(1)


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        errs = [(model(x) - y).abs() for x, y in loader]
    model.train()
    return torch.cat(errs).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="soil_"))
    try:
        rng = np.random.default_rng(8)
        smooth = SavitzkyLike()
        full = ConcatDataset([Campaign(write_campaign(root, y, 150, rng), smooth) for y in (2019, 2020, 2021, 2022)])
        train, val = random_split(full, [520, 80], generator=torch.Generator().manual_seed(1))
        train_loader = DataLoader(train, args.batch_size, shuffle=True, num_workers=args.workers, persistent_workers=True)
        val_loader = DataLoader(val, args.batch_size, num_workers=0)
        model = Net()
        opt = torch.optim.AdamW(model.parameters(), 2e-3)
        for epoch in range(args.epochs):
            total = 0.0
            for x, y in train_loader:
                loss = nn.functional.smooth_l1_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            print(f"epoch {epoch} train {total / len(train_loader):.4f} val mae {evaluate(model, val_loader):.3f}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
