# cause: wrong-length, dataset-raises
"""Matrix factorisation with side features, ratings kept as fixed-size binary records."""
import mmap
import os
import shutil
import struct
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORD = struct.Struct("<iif64f")
USERS, ITEMS = 300, 500


class RatingsFile:
    MAGIC = b"RTNG0001"

    def __init__(self, path):
        self.path = path

    def write(self, n):
        r = np.random.RandomState(1)
        with open(self.path, "wb") as f:
            f.write(self.MAGIC + struct.pack("<q", n))
            for _ in range(n):
                side = r.normal(size=64)
                f.write(RECORD.pack(r.randint(USERS), r.randint(ITEMS), float(r.randint(1, 11)) / 2, *side))

    def header_count(self):
        with open(self.path, "rb") as f:
            assert f.read(8) == self.MAGIC
            return struct.unpack("<q", f.read(8))[0]

    def load(self):
        with open(self.path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
            return [RECORD.unpack_from(m, 16 + k * RECORD.size) for k in range(self.header_count())]


class Ratings(Dataset):
    """Ratings of users that gave at least `least` of them."""

    def __init__(self, source, least=5):
        self.source = source
        rows = source.load()
        per_user = np.bincount([row[0] for row in rows], minlength=USERS)
        self.rows = [row for row in rows if per_user[row[0]] >= least]

    def __len__(self):
        return self.source.header_count()

    def __getitem__(self, index):
        user, item, stars, *side = self.rows[index]
        side = np.asarray(side, dtype=np.float64)
        # random Fourier features of the side vector
        basis = np.cos(np.outer(np.arange(1, 129), side)) + np.sin(np.outer(np.arange(1, 129), side[::-1]))
        for _ in range(4):
            basis = np.tanh(basis + np.roll(basis, 1, axis=1))
        feats = torch.from_numpy(basis.mean(1).astype(np.float32))
        return torch.tensor(user), torch.tensor(item), feats, torch.tensor(stars, dtype=torch.float32)


class Factor(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.u, self.i = nn.Embedding(USERS, dim), nn.Embedding(ITEMS, dim)
        self.side = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))
        self.bias = nn.Parameter(torch.tensor(2.5))

    def forward(self, u, i, s):
        return (self.u(u) * self.i(i)).sum(-1) + self.side(s).squeeze(-1) + self.bias


def fit(path, epochs=2):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    store = RatingsFile(path)
    store.write(1400)
    loader = DataLoader(Ratings(store), batch_size=32, num_workers=2, persistent_workers=True)
    model = Factor()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-5)
    for epoch in range(epochs):
        se = n = 0
        for u, i, s, stars in loader:
            pred = model(u, i, s)
            loss = nn.functional.mse_loss(pred, stars)
            opt.zero_grad()
            loss.backward()
            opt.step()
            se, n = se + ((pred - stars) ** 2).sum().item(), n + len(u)
        print(f"epoch {epoch} rmse {(se / n) ** 0.5:.3f}")


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    try:
        fit(os.path.join(folder, "ratings.bin"))
    finally:
        shutil.rmtree(folder)
