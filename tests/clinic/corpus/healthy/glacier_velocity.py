# limits: shm=64M
"""Glacier surface displacement from image pairs. Scenes lie in one large array on disk; pairs of chips are cut from it."""
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCENES, EDGE, CHIP, REACH = 40, 1024, 64, 6


def fly_over(path):
    """Writes the scene archive; every scene is the ice texture, a bit further down the valley."""
    rng = np.random.default_rng(3)
    ice = rng.integers(0, 255, (EDGE + 200, EDGE), dtype=np.uint8)
    ice = ((ice.astype(np.uint16) + np.roll(ice, 1, 0) + np.roll(ice, 1, 1)) // 3).astype(np.uint8)
    archive = np.lib.format.open_memmap(path, "w+", np.uint8, (SCENES, EDGE, EDGE))
    for scene in range(SCENES):
        archive[scene] = ice[4 * scene:4 * scene + EDGE]
    archive.flush()
    del archive


class ChipPairs(Dataset):
    """Two chips with a known offset; the archive is mapped when a process first needs it."""

    def __init__(self, path, count, seed):
        self.path, self.count, self.seed = path, count, seed
        self._archive = None
        window = np.hanning(CHIP)
        self.taper = np.outer(window, window).astype(np.float32)

    @property
    def archive(self):
        if self._archive is None:
            self._archive = np.load(self.path, mmap_mode="r")
        return self._archive

    def __getstate__(self):
        return {**self.__dict__, "_archive": None}

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng([self.seed, index])
        scene = rng.integers(0, SCENES)
        y, x = rng.integers(REACH, EDGE - CHIP - REACH, 2)
        dy, dx = rng.integers(-REACH, REACH + 1, 2)
        whole = self.archive[scene]
        first = whole[y:y + CHIP, x:x + CHIP].astype(np.float32)
        second = whole[y + dy:y + dy + CHIP, x + dx:x + dx + CHIP].astype(np.float32)
        second += 6 * np.random.standard_normal(second.shape).astype(np.float32)
        spectra = [np.fft.fft2((chip - chip.mean()) * self.taper, (4 * CHIP, 4 * CHIP)) for chip in (first, second)]
        cross = spectra[0] * spectra[1].conj()
        correlation = np.fft.fftshift(np.fft.ifft2(cross / (np.abs(cross) + 1e-3)).real)
        surface = torch.from_numpy(correlation.astype(np.float32))[None] * 50
        middle, half = 2 * CHIP, 16
        return surface[:, middle - half:middle + half, middle - half:middle + half], torch.tensor([dy, dx]).float()


class Peak(nn.Module):
    """Soft argmax of a filtered correlation surface."""

    def __init__(self):
        super().__init__()
        self.filter = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
        axis = torch.arange(32) - 16.0
        self.register_buffer("grid", torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(-1, 2))

    def forward(self, surface):
        weight = self.filter(surface).flatten(1).softmax(1)
        return weight @ self.grid


def make_loaders(path, workers=2):
    options = dict(num_workers=workers, persistent_workers=workers > 0)
    return (DataLoader(ChipPairs(path, 800, 1), 32, shuffle=True, drop_last=True, **options),
            DataLoader(ChipPairs(path, 96, 2), 32, **options))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="glacier") as folder:
        path = os.path.join(folder, "scenes.npy")
        fly_over(path)
        train_loader, val_loader = make_loaders(path)
        model = Peak()
        optimizer = torch.optim.Adam(model.parameters(), 5e-3)
        for epoch in range(2):
            began = time.time()
            for surface, offset in train_loader:
                loss = nn.functional.smooth_l1_loss(model(surface), offset)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                miss = torch.cat([(model(s) - o).norm(dim=1) for s, o in val_loader])
            print(f"epoch {epoch}: median miss {miss.median():.2f} px, {time.time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
