# cause: worker-segfault
"""Volatility regime from tick archives. One file per instrument and day: uint32 row count, then float64 prices."""
import pathlib
import struct
import tempfile

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided
from torch import nn
from torch.utils.data import DataLoader, Dataset


def write_day(path, prices, order="<"):
    path.write_bytes(struct.pack(order + "I", len(prices)) + prices.astype("<f8").tobytes())


def rolling(x, rows, window, hop):
    """View of all windows of a series without copying."""
    count = (rows - window) // hop + 1
    return as_strided(x, (count, window), (x.itemsize * hop, x.itemsize))


class TickDays(Dataset):
    def __init__(self, files, window=256, hop=16, buckets=64):
        self.files, self.window, self.hop, self.buckets = files, window, hop, buckets

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        blob = self.files[i].read_bytes()
        (rows,) = struct.unpack_from("<I", blob)
        logp = np.log(np.frombuffer(blob, "<f8", offset=4))
        view = rolling(logp, rows, self.window, self.hop)
        vol = np.sqrt(((view - view.mean(1, keepdims=True)) ** 2).mean(1))
        q = np.quantile(vol, np.linspace(0, 1, self.buckets)).astype(np.float32)
        regime = int("wild" in self.files[i].stem)
        return torch.from_numpy(q) * 100, regime


def exchange(folder, days):
    rng = np.random.default_rng(3)
    files = []
    for d in range(days):
        wild = d % 3 == 0
        n = int(rng.integers(9000, 16000))
        prices = 100 * np.exp(np.cumsum(rng.standard_normal(n) * (4e-4 if wild else 2e-4)))
        f = folder / f"{d:04d}_{'wild' if wild else 'calm'}.tick"
        legacy_feed = d % 157 == 101
        write_day(f, prices, ">" if legacy_feed else "<")
        files.append(f)
    return files


def cycle(loader):
    while True:
        yield from loader


def main(steps=90, report=15):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        files = exchange(pathlib.Path(tmp), 320)
        loader = DataLoader(TickDays(files), batch_size=10, shuffle=True, num_workers=2, persistent_workers=True)
        net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 2))
        opt = torch.optim.Adam(net.parameters(), 2e-3)
        hits = seen = 0
        for step, (x, y) in enumerate(cycle(loader), 1):
            out = net(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += int((out.argmax(1) == y).sum())
            seen += len(y)
            if step % report == 0:
                print(f"step {step:3d} loss {loss.item():.3f} acc {hits / seen:.3f}", flush=True)
                hits = seen = 0
            if step == steps:
                break


if __name__ == "__main__":
    main()
