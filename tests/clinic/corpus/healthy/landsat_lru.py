"""Patches from scenes; each worker keeps only the two scenes last used and the sampler visits scene by scene."""
import tempfile
import zlib
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

BANDS, SIDE, PATCH = 6, 512, 48


class LruScenes:
    def __init__(self, folder, keep=2):
        self.files, self.keep, self.held = sorted(folder.glob("*.zz")), keep, OrderedDict()

    def __getitem__(self, k):
        if k in self.held:
            self.held.move_to_end(k)
        else:
            raw = zlib.decompress(self.files[k].read_bytes())
            self.held[k] = np.frombuffer(raw, np.float32).reshape(BANDS, SIDE, SIDE)
            while len(self.held) > self.keep:
                self.held.popitem(last=False)
        return self.held[k]


class Patches(Dataset):
    def __init__(self, scenes, per_scene):
        rng = np.random.default_rng(1)
        self.scenes, self.per = scenes, per_scene
        self.corner = rng.integers(0, SIDE - PATCH, (len(scenes.files) * per_scene, 2))

    def __len__(self):
        return len(self.corner)

    def __getitem__(self, i):
        y, x = self.corner[i]
        p = self.scenes[i // self.per][:, y:y + PATCH, x:x + PATCH]
        f = np.fft.fft2(p) * np.exp(-np.abs(np.fft.fftfreq(PATCH))[None, :, None] * 3)
        q = np.real(np.fft.ifft2(f))
        q = np.stack([np.roll(q, s, 1) - q for s in (-2, -1, 1, 2)]).mean(0) + q
        g = np.stack([np.real(np.fft.ifft2(np.fft.fft2(q) * np.exp(-s * np.abs(np.fft.fftfreq(PATCH))))) for s in (1, 4, 9)])
        return torch.from_numpy(g.mean(0).astype(np.float32)), int(q.mean((1, 2)).argmax())


class SceneOrder(Sampler):
    """Scenes in random order, patches within a scene in random order."""

    def __init__(self, n_scenes, per_scene):
        self.n, self.per = n_scenes, per_scene

    def __iter__(self):
        for s in torch.randperm(self.n).tolist():
            for j in torch.randperm(self.per).tolist():
                yield s * self.per + j

    def __len__(self):
        return self.n * self.per


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        root, rng = Path(tmp), np.random.default_rng(0)
        for k in range(12):
            coarse = rng.normal(0, 1, (BANDS, SIDE // 32, SIDE // 32)).astype(np.float32)
            (root / f"{k:02d}.zz").write_bytes(zlib.compress(coarse.repeat(32, 1).repeat(32, 2).tobytes(), 1))
        data = Patches(LruScenes(root), 100)
        loader = DataLoader(data, batch_size=25, sampler=SceneOrder(12, 100), num_workers=2, persistent_workers=True)
        net = nn.Sequential(nn.Conv2d(BANDS, 12, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, BANDS))
        opt = torch.optim.AdamW(net.parameters(), 3e-3)
        for epoch in range(4):
            hit = 0
            for x, y in loader:
                out = net(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                hit += (out.argmax(1) == y).sum().item()
            print(f"epoch {epoch} acc {hit / len(data):.3f}", flush=True)


if __name__ == "__main__":
    main()
