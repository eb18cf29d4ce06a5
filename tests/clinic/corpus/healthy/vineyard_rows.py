"""Mildew scoring along vineyard rows; bands are fetched side by side, checkpoints are written in the background."""
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

log = logging.getLogger("vineyard")
BANDS = 4


class Calibration:
    def __init__(self):
        self._gain, self._busy = np.ones(BANDS, np.float32), threading.Lock()

    def gain(self):
        with self._busy:
            return self._gain.copy()

    def store(self, path):
        with self._busy:
            np.save(path, self._gain)


class BandStore:
    """Band files of a row section. Every process that reads has readers of its own."""

    def __init__(self, root):
        self.root, self._pool, self._owner = Path(root), None, None

    def _readers(self):
        if self._owner != os.getpid():
            self._pool, self._owner = ThreadPoolExecutor(BANDS), os.getpid()
        return self._pool

    def _one(self, path):
        time.sleep(0.003)
        return np.fromfile(path, np.float32).reshape(64, 64)

    def fetch(self, key):
        return np.stack(list(self._readers().map(self._one, [self.root / key / f"b{b}.raw" for b in range(BANDS)])))


class Sections(Dataset):
    def __init__(self, store, keys, calibration):
        self.store, self.keys, self.calibration = store, keys, calibration

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        x = self.store.fetch(self.keys[i]) * self.calibration.gain()[:, None, None]
        return torch.from_numpy(x), torch.tensor(float(self.keys[i].split("-")[1]))


class Saver:
    def __init__(self, folder, calibration):
        self.folder, self.calibration, self.thread = folder, calibration, None

    def _write(self, state, epoch):
        torch.save(state, self.folder / f"{epoch}.pt")
        self.calibration.store(self.folder / f"{epoch}.npy")
        time.sleep(0.3)                                      # network volume

    def save(self, model, epoch):
        self.wait()
        state = {k: v.clone() for k, v in model.state_dict().items()}
        self.thread = threading.Thread(target=self._write, args=(state, epoch))
        self.thread.start()

    def wait(self):
        if self.thread:
            self.thread.join()


def survey(root, n):
    rng = np.random.default_rng(4)
    for i in range(n):
        score = int(rng.integers(0, 5))
        (root / f"{i:04d}-{score}").mkdir()
        for b in range(BANDS):
            (rng.random((64, 64), np.float32) + 0.1 * score * (b == 2)).tofile(root / f"{i:04d}-{score}" / f"b{b}.raw")
    return sorted(p.name for p in root.iterdir())


def main(root, epochs=3):
    (root / "data").mkdir()
    keys = survey(root / "data", 200)
    calibration = Calibration()
    data = Sections(BandStore(root / "data"), keys, calibration)
    log.info("first section has mean %.3f", data[0][0].mean())
    train = DataLoader(Subset(data, range(160)), 8, shuffle=True, num_workers=2, persistent_workers=True)
    val = DataLoader(Subset(data, range(160, 200)), 20, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Conv2d(BANDS, 8, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 1))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    saver = Saver(root, calibration)
    for epoch in range(epochs):
        for x, y in train:
            loss = nn.functional.smooth_l1_loss(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.04)                                 # rest of the step runs on the accelerator
        with torch.no_grad():
            error = np.mean([(model(x).squeeze(1) - y).abs().mean().item() for x, y in val])
        log.info("epoch %d loss %.3f val %.3f", epoch, loss.item(), error)
        saver.save(model, epoch)
    saver.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp())
    try:
        main(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
