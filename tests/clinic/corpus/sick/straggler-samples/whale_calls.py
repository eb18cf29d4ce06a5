# cause: straggler-samples
"""Whale call detector over hydrophone clips kept in an object store with per-prefix throttling."""
import hashlib
import io
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Throttled(Exception):
    pass


class Bucket:
    """Stand-in for the object store of the array: same latencies, same occasional 503."""

    def __init__(self, root):
        self.root = root

    def get(self, key, attempt):
        time.sleep(0.003)
        if attempt < 3 and int(hashlib.md5(key.encode()).hexdigest(), 16) % 130 == 0:
            raise Throttled("503 Slow Down")
        with open(os.path.join(self.root, key), "rb") as f:
            return f.read()


def get_with_backoff(bucket, key, base=0.25, tries=6):
    for attempt in range(tries):
        try:
            return bucket.get(key, attempt)
        except Throttled:
            time.sleep(base * 2 ** attempt)
    raise RuntimeError(f"gave up on {key}")


class Clips(Dataset):
    def __init__(self, bucket, keys):
        self.bucket, self.keys = bucket, keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        wave = np.load(io.BytesIO(get_with_backoff(self.bucket, self.keys[i])))
        frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::128]
        spec = np.log1p(np.abs(np.fft.rfft(frames * np.hamming(256), axis=1)))
        return torch.from_numpy(spec.astype(np.float32)), torch.tensor(int(self.keys[i].split("_")[1][0]))


def record(root, n):
    rng = np.random.default_rng(4)
    keys = []
    for k in range(n):
        label = int(rng.integers(0, 2))
        t = np.arange(2000) / 1000
        wave = rng.normal(size=t.size) + label * np.sin(2 * np.pi * (30 + 20 * t) * t)
        keys.append(f"buoy{k:04d}_{label}.npy")
        np.save(os.path.join(root, keys[-1]), wave.astype(np.float32))
    return keys


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv1d(129, 48, 3)
        self.c2 = nn.Conv1d(48, 48, 3, stride=2)
        self.fc = nn.Linear(48, 2)

    def forward(self, x):
        h = torch.relu(self.c2(torch.relu(self.c1(x.transpose(1, 2)))))
        return self.fc(h.amax(2))


def train(keys, bucket, epochs=1):
    loader = DataLoader(Clips(bucket, keys), batch_size=4, shuffle=True, num_workers=4, persistent_workers=True)
    net = Detector()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(epochs):
        right = 0
        for spec, label in loader:
            out = net(spec)
            loss = nn.functional.cross_entropy(out, label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (out.argmax(1) == label).sum().item()
        print(f"epoch {epoch} acc {right / len(keys):.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    home = tempfile.mkdtemp(prefix="hydro")
    try:
        train(record(home, 1000), Bucket(home))
    finally:
        shutil.rmtree(home)
