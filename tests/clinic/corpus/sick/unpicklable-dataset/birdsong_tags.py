# cause: unpicklable-dataset
# also: slow-worker-start
"""Multi-label bird song tagging from short field recordings (toy size)."""
import json
import tempfile
import threading
import wave
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split

CONFIG = {
    "data": {"n_clips": 360, "sr": 16000, "seconds": 1.5, "n_species": 6},
    "features": {"n_fft": 512, "hop": 160, "cache_items": 64},
    "loader": {"batch_size": 24, "num_workers": 2, "multiprocessing_context": "forkserver",
               "persistent_workers": True, "prefetch_factor": 2},
    "train": {"epochs": 4, "lr": 2e-3, "seed": 11},
}


def synthesise_recordings(root: Path, cfg):
    rng = np.random.default_rng(0)
    n = int(cfg["sr"] * cfg["seconds"])
    t = np.arange(n) / cfg["sr"]
    index = []
    for k in range(cfg["n_clips"]):
        tags = (rng.random(cfg["n_species"]) < 0.3).astype(int)
        sig = 0.05 * rng.standard_normal(n)
        for s in np.flatnonzero(tags):
            f0 = 1200 + 700 * s
            sig += 0.3 * np.sin(2 * np.pi * (f0 * t + 150 * np.sin(2 * np.pi * 5 * t)))
        pcm = np.clip(sig * 16000, -32768, 32767).astype("<i2")
        name = f"rec_{k:04d}.wav"
        with wave.open(str(root / name), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(cfg["sr"])
            w.writeframes(pcm.tobytes())
        index.append({"file": name, "tags": tags.tolist()})
    (root / "index.json").write_text(json.dumps(index))


class SpectrogramStore:
    """Small LRU of log spectrograms, also used by the annotation viewer's threads."""

    def __init__(self, n_fft, hop, max_items):
        self.n_fft, self.hop, self.max_items = n_fft, hop, max_items
        self.window = torch.hann_window(n_fft)
        self._items = OrderedDict()
        self._guard = threading.RLock()

    def compute(self, path):
        with wave.open(str(path), "rb") as w:
            x = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2").astype(np.float32) / 32768
        spec = torch.stft(torch.from_numpy(x), self.n_fft, self.hop, window=self.window, return_complex=True)
        return torch.log1p(spec.abs()[:128])

    def get(self, path):
        with self._guard:
            if path in self._items:
                self._items.move_to_end(path)
                return self._items[path]
        spec = self.compute(path)
        with self._guard:
            self._items[path] = spec
            while len(self._items) > self.max_items:
                self._items.popitem(last=False)
        return spec


class FieldRecordings(Dataset):
    def __init__(self, root, feat_cfg):
        self.root = Path(root)
        self.index = json.loads((self.root / "index.json").read_text())
        self.store = SpectrogramStore(feat_cfg["n_fft"], feat_cfg["hop"], feat_cfg["cache_items"])

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        rec = self.index[i]
        spec = self.store.get(self.root / rec["file"])
        return spec.unsqueeze(0), torch.tensor(rec["tags"], dtype=torch.float32)


class TagsNet(nn.Module):
    def __init__(self, n_out):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
            nn.AdaptiveAvgPool2d((8, 1)), nn.Flatten())
        self.head = nn.Linear(32 * 8, n_out)

    def forward(self, x):
        return self.head(self.body(x))


def build_loaders(root, cfg):
    full = FieldRecordings(root, cfg["features"])
    n_val = len(full) // 6
    train, val = random_split(full, [len(full) - n_val, n_val], generator=torch.Generator().manual_seed(3))
    kw = cfg["loader"]
    return DataLoader(train, shuffle=True, **kw), DataLoader(val, **kw)


def main(cfg=CONFIG):
    torch.manual_seed(cfg["train"]["seed"])
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        synthesise_recordings(root, cfg["data"])
        train_dl, val_dl = build_loaders(root, cfg)
        net = TagsNet(cfg["data"]["n_species"])
        opt = torch.optim.AdamW(net.parameters(), lr=cfg["train"]["lr"])
        loss_fn = nn.BCEWithLogitsLoss()
        for epoch in range(cfg["train"]["epochs"]):
            net.train()
            total = 0.0
            for x, y in train_dl:
                opt.zero_grad()
                loss = loss_fn(net(x), y)
                loss.backward()
                opt.step()
                total += loss.item()
            net.eval()
            hits = n = 0
            with torch.no_grad():
                for x, y in val_dl:
                    hits += ((net(x) > 0) == (y > 0.5)).sum().item()
                    n += y.numel()
            print(f"epoch {epoch} loss {total / len(train_dl):.4f} val acc {hits / n:.3f}", flush=True)


if __name__ == "__main__":
    main()
