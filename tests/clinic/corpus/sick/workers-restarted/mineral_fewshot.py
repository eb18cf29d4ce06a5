# cause: workers-restarted
"""Few-shot mineral classifier on hyperspectral pixels: a small labelled set, many passes."""
import argparse
import logging

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, get_worker_info

log = logging.getLogger("minerals")


def response_matrix(bands, channels):
    """Gaussian sensor response, integrated numerically over the laboratory wavelength grid."""
    grid = np.linspace(0.4, 2.5, bands)
    centres = np.linspace(0.42, 2.48, channels)
    rows = []
    for c in centres:
        acc = np.zeros(bands)
        for step in np.linspace(-3, 3, 151):
            w = 0.01 * (1 + 0.2 * step * step / 9)
            acc += np.exp(-0.5 * ((grid - c - step * 0.002) / w) ** 2)
        rows.append(acc / acc.sum())
    return np.stack(rows).astype(np.float32)


def prepare_worker(worker_id):
    ds = get_worker_info().dataset
    ds.response = response_matrix(ds.bands, ds.channels)
    np.random.seed(torch.initial_seed() % 2**31 + worker_id)


class LabSpectra(Dataset):
    def __init__(self, n, bands=2100, channels=96, classes=6, seed=0):
        rng = np.random.default_rng(seed)
        self.bands, self.channels = bands, channels
        base = np.cumsum(np.random.default_rng(99).normal(size=(classes, bands)), 1).astype(np.float32) * 0.02
        self.labels = rng.integers(0, classes, n)
        self.spectra = base[self.labels] + rng.normal(scale=0.3, size=(n, bands)).astype(np.float32)
        self.response = None

    def __len__(self):
        return len(self.labels)

    def continuum_removed(self, s):
        out = s.copy()
        for width in (31, 61, 121, 241):
            kernel = np.hanning(width)
            out = np.maximum(out, np.convolve(out, kernel / kernel.sum(), "same"))
        return s - out

    def __getitem__(self, i):
        s = self.spectra[i]
        s = s * np.random.uniform(0.8, 1.2) + np.random.normal(scale=0.02, size=s.shape)
        s = self.continuum_removed(s)
        return torch.from_numpy((self.response @ s).astype(np.float32)), int(self.labels[i])


def build_model(channels, classes):
    return torch.nn.Sequential(
        torch.nn.Linear(channels, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(),
        torch.nn.Dropout(0.2), torch.nn.Linear(64, classes))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=25)
    p.add_argument("--shots", type=int, default=96)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--jobs", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)6d %(message)s")
    torch.manual_seed(0)

    ds = LabSpectra(args.shots)
    loader = DataLoader(ds, batch_size=args.batch, shuffle=True, num_workers=args.jobs,
                        worker_init_fn=prepare_worker, drop_last=True)
    model = build_model(ds.channels, 6)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs)
    for epoch in range(args.epochs):
        hits = seen = 0
        for x, y in loader:
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += (logits.argmax(1) == y).sum().item()
            seen += len(y)
        sched.step()
        if epoch % 5 == 0:
            log.info("epoch %d acc %.2f", epoch, hits / seen)


if __name__ == "__main__":
    main()
