# cause: straggler-samples
# also: not-fed-fast-enough
"""Topic model for podcast episodes fetched from an archive with several mirrors."""
import argparse
import time
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Mirror:
    def __init__(self, name, missing):
        self.name, self.missing = name, missing

    def get(self, key):
        if self.missing(key):
            raise KeyError(key)
        time.sleep(0.003)
        return bytes((zlib.crc32(b"%d/%d" % (key, j)) & 0xFF) for j in range(256))


class Archive:
    def __init__(self, mirrors, backoff):
        self.mirrors, self.backoff = mirrors, backoff

    def fetch(self, key):
        delay = self.backoff
        for m in self.mirrors:
            try:
                return m.get(key)
            except KeyError:
                time.sleep(delay)
                delay *= 2
        raise RuntimeError("no mirror has %d" % key)


class Episodes(Dataset):
    def __init__(self, n, archive):
        self.n, self.archive = n, archive

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        raw = torch.frombuffer(bytearray(self.archive.fetch(i)), dtype=torch.uint8)
        counts = torch.bincount(raw.long(), minlength=256).float()
        return counts / counts.sum(), i % 6


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--episodes", type=int, default=640)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch", type=int, default=8)
    a = p.parse_args()
    torch.set_num_threads(1)
    archive = Archive([Mirror("eu", lambda k: k % 107 == 20), Mirror("us", lambda k: k % 107 == 20), Mirror("asia", lambda k: False)], 0.3)
    loader = DataLoader(Episodes(a.episodes, archive), a.batch, num_workers=a.workers)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 6))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    t0 = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.03)                   # the large encoder on the remote device
        if step % 20 == 19:
            print("step %d loss %.3f t=%.1f" % (step + 1, loss.item(), time.time() - t0), flush=True)


if __name__ == "__main__":
    main()
