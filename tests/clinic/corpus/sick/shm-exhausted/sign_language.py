# cause: shm-exhausted
# limits: shm=64M
"""Sign recognition from short clips. Clips are decoded once and the pixels are shared between the loader's processes."""
import logging
import os
import tempfile
import zlib
from multiprocessing import resource_tracker, shared_memory

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

log = logging.getLogger("sign")
CONFIG = dict(clips=60, frames=24, side=144, classes=6, window=8, batch=5, workers=2, epochs=2, lr=2e-3)


class ClipPool:
    """Decoded clips by key; the first process that needs a clip decodes it, the others attach to it."""

    def __init__(self, tag, shape):
        self.tag, self.shape = tag, shape
        self.size = int(np.prod(shape))
        self.open = {}

    def _name(self, key):
        return f"{self.tag}_{key}"

    def get(self, key, decode):
        if key not in self.open:
            try:
                block = shared_memory.SharedMemory(self._name(key))
            except FileNotFoundError:
                pixels = decode(key)
                try:
                    block = shared_memory.SharedMemory(self._name(key), create=True, size=self.size)
                    np.ndarray(self.shape, np.uint8, block.buf)[:] = pixels
                except FileExistsError:
                    block = shared_memory.SharedMemory(self._name(key))
            resource_tracker.unregister(block._name, "shared_memory")
            self.open[key] = block
        return np.ndarray(self.shape, np.uint8, self.open[key].buf)

    def clear(self, keys):
        for key in keys:
            try:
                block = shared_memory.SharedMemory(self._name(key))
            except FileNotFoundError:
                continue
            block.close()
            block.unlink()


class SignClips(Dataset):
    def __init__(self, root, cfg):
        self.cfg = cfg
        self.root = root
        self.labels = [i % cfg["classes"] for i in range(cfg["clips"])]
        self.pool = ClipPool(f"sign{os.getpid()}", (cfg["frames"], cfg["side"], cfg["side"], 3))

    def path(self, i):
        return os.path.join(self.root, f"{i:04d}.clip")

    def decode(self, i):
        with open(self.path(i), "rb") as fh:
            return np.frombuffer(zlib.decompress(fh.read()), np.uint8).reshape(self.pool.shape)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        clip = self.pool.get(i, self.decode)
        start = int(torch.randint(0, self.cfg["frames"] - self.cfg["window"], ()))
        frames = torch.from_numpy(clip[start:start + self.cfg["window"], ::4, ::4].copy())
        return frames.permute(3, 0, 1, 2).float().div_(255), self.labels[i]


def prepare(root, cfg):
    rng = np.random.default_rng(7)
    for i in range(cfg["clips"]):
        tile = rng.integers(0, 255, (cfg["frames"], cfg["side"] // 8, cfg["side"] // 8, 3), dtype=np.uint8)
        clip = tile.repeat(8, axis=1).repeat(8, axis=2)
        clip[:, :, : 12 * (i % cfg["classes"] + 1)] //= 4
        with open(os.path.join(root, f"{i:04d}.clip"), "wb") as fh:
            fh.write(zlib.compress(clip.tobytes(), 1))


class ClipNet(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Conv3d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv3d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
                         nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, classes))


def accuracy(model, loader):
    model.eval()
    with torch.no_grad():
        hits = [(model(x).argmax(1) == y).float().mean().item() for x, y in loader]
    model.train()
    return sum(hits) / len(hits)


def run(root, cfg):
    data = SignClips(root, cfg)
    train_part, val_part = Subset(data, range(0, 50)), Subset(data, range(50, 60))
    loader = DataLoader(train_part, cfg["batch"], shuffle=True, num_workers=cfg["workers"], persistent_workers=True)
    val = DataLoader(val_part, cfg["batch"])
    model = ClipNet(cfg["classes"])
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    try:
        for epoch in range(cfg["epochs"]):
            for step, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x), y)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                log.info("epoch %d step %d loss %.3f", epoch, step, loss.item())
            log.info("epoch %d validation accuracy %.2f", epoch, accuracy(model, val))
    finally:
        data.pool.clear(range(cfg["clips"]))


if __name__ == "__main__":
    import sys
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder, CONFIG)
        run(folder, CONFIG)
