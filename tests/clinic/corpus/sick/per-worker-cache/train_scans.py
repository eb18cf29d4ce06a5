# cause: per-worker-cache
import dataclasses
import os
import tempfile
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


@dataclasses.dataclass
class Settings:
    volumes: int = 40
    shape: tuple = (48, 128, 128)
    patch: int = 16
    patches_per_epoch: int = 640
    batch: int = 16
    workers: int = 2
    epochs: int = 3


def write_volumes(root, s):
    rng = np.random.default_rng(3)
    for i in range(s.volumes):
        z, y, x = np.indices(s.shape, dtype=np.float32)
        c = rng.uniform(0.3, 0.7, 3) * s.shape
        v = np.exp(-((z - c[0]) ** 2 + (y - c[1]) ** 2 + (x - c[2]) ** 2) / 900.0)
        with open(os.path.join(root, "vol%03d.zv" % i), "wb") as f:
            f.write(zlib.compress((v * 1000).astype(np.int16).tobytes(), 1))


class VolumeFolder(Dataset):
    def __init__(self, root, s):
        self.files = sorted(os.path.join(root, n) for n in os.listdir(root))
        self.s = s
        self.state = {"volumes": {}, "hits": 0}

    def __len__(self):
        return len(self.files) * 1000

    def _volume(self, k):
        store = self.state["volumes"]
        if k in store:
            self.state["hits"] += 1
            return store[k]
        with open(self.files[k], "rb") as f:
            raw = zlib.decompress(f.read())
        v = np.frombuffer(raw, np.int16).reshape(self.s.shape).astype(np.float32) / 1000
        return store.setdefault(k, v)

    def __getitem__(self, i):
        v = self._volume(i % len(self.files))
        p = self.s.patch
        corner = [int(torch.randint(0, n - p, ())) for n in v.shape]
        cut = v[tuple(slice(c, c + p) for c in corner)]
        noise = torch.randn(p, p, p) * 0.05
        return torch.from_numpy(cut.copy())[None] + noise, torch.from_numpy(cut.copy())[None]


class Denoiser(nn.Sequential):
    def __init__(self, ch=4):
        super().__init__(nn.Conv3d(1, ch, 3, padding=1), nn.ReLU(), nn.Conv3d(ch, 1, 3, padding=1))


class Trainer:
    def __init__(self, s, root):
        self.s = s
        data = VolumeFolder(root, s)
        self.loader = DataLoader(data, s.batch, sampler=RandomSampler(data, num_samples=s.patches_per_epoch),
                                 num_workers=s.workers, persistent_workers=True)
        self.model = Denoiser()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def step(self, noisy, clean):
        loss = nn.functional.mse_loss(self.model(noisy), clean)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def run(self):
        for epoch in range(self.s.epochs):
            losses = [self.step(a, b) for a, b in self.loader]
            print("epoch", epoch, "loss %.5f" % np.mean(losses))


def main():
    s = Settings()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        write_volumes(root, s)
        Trainer(s, root).run()


if __name__ == "__main__":
    main()
