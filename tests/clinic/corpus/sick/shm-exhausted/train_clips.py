# cause: shm-exhausted
# limits: shm=96M
"""Action recognition on short clips of unequal length."""
from __future__ import annotations

import functools
import os
import tempfile
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

CFG = {
    "clips": 96,
    "frames": (24, 48),
    "side": 112,
    "classes": 5,
    "loader": {"num_workers": 2, "prefetch_factor": 2},
    "batch_size": 4,
    "lr": 1e-3,
    "epochs": 2,
}


class ClipStore:
    """Compressed low resolution clips in one folder."""

    def __init__(self, folder: str):
        self.folder = folder
        self.meta: list[tuple[int, int]] = []

    def populate(self, cfg: dict) -> "ClipStore":
        rng = np.random.default_rng(0)
        for i in range(cfg["clips"]):
            t = int(rng.integers(*cfg["frames"]))
            label = int(rng.integers(cfg["classes"]))
            clip = rng.normal(label * 10 + 100, 20, (t, 3, 28, 28)).clip(0, 255).astype(np.uint8)
            with open(self._path(i), "wb") as f:
                f.write(zlib.compress(clip.tobytes(), 1))
            self.meta.append((t, label))
        return self

    def _path(self, i: int) -> str:
        return os.path.join(self.folder, f"c{i}.z")

    def load(self, i: int) -> tuple[np.ndarray, int]:
        t, label = self.meta[i]
        with open(self._path(i), "rb") as f:
            raw = zlib.decompress(f.read())
        return np.frombuffer(raw, np.uint8).reshape(t, 3, 28, 28), label


class Clips(Dataset):
    def __init__(self, store: ClipStore, side: int):
        self.store = store
        self.rep = side // 28

    def __len__(self):
        return len(self.store.meta)

    def __getitem__(self, i):
        clip, label = self.store.load(i)
        big = clip.repeat(self.rep, axis=2).repeat(self.rep, axis=3)
        return torch.from_numpy(big.astype(np.float32) / 127.5 - 1.0), label


def pad_clips(samples, value: float):
    longest = max(c.shape[0] for c, _ in samples)
    video = torch.full((len(samples), longest, *samples[0][0].shape[1:]), value)
    lengths = torch.empty(len(samples), dtype=torch.long)
    for row, (clip, _) in enumerate(samples):
        video[row, : len(clip)] = clip
        lengths[row] = len(clip)
    return {"video": video, "lengths": lengths, "label": torch.tensor([l for _, l in samples])}


class ClipNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.frame = nn.Sequential(nn.Conv2d(3, 8, 7, stride=7), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.out = nn.Linear(32, classes)

    def forward(self, video, lengths):
        b, t = video.shape[:2]
        f = self.frame(video.flatten(0, 1)).view(b, t, -1)
        mask = (torch.arange(t)[None] < lengths[:, None]).unsqueeze(-1)
        return self.out((f * mask).sum(1) / lengths[:, None])


def main():
    with tempfile.TemporaryDirectory(prefix="clips") as folder:
        data = Clips(ClipStore(folder).populate(CFG), CFG["side"])
        batches = BatchSampler(RandomSampler(data), CFG["batch_size"], drop_last=False)
        loader = DataLoader(data, batch_sampler=batches, collate_fn=functools.partial(pad_clips, value=-1.0), **CFG["loader"])
        net = ClipNet(CFG["classes"])
        opt = torch.optim.Adam(net.parameters(), lr=CFG["lr"])
        for epoch in range(CFG["epochs"]):
            hits = seen = 0
            for batch in loader:
                logits = net(batch["video"], batch["lengths"])
                loss = nn.functional.cross_entropy(logits, batch["label"])
                opt.zero_grad()
                loss.backward()
                opt.step()
                hits += (logits.argmax(1) == batch["label"]).sum().item()
                seen += len(batch["label"])
            print(f"[{epoch}] accuracy {hits / seen:.3f}", flush=True)


if __name__ == "__main__":
    main()
