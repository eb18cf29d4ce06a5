"""Property prediction for molecules kept in a SQLite file."""
import os
import sqlite3
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

ATOMS = 24


class MoleculeStore:
    """Connection to the store, one per process."""

    def __init__(self, path):
        self.path = path
        self._con = None
        self._pid = None

    def _connection(self):
        if self._con is None or self._pid != os.getpid():
            self._con = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
            self._pid = os.getpid()
        return self._con

    def count(self):
        # asked by the main process before the loaders start; not kept open
        con = sqlite3.connect(self.path)
        try:
            return con.execute("select count(*) from mol").fetchone()[0]
        finally:
            con.close()

    def fetch(self, key):
        return self._connection().execute("select coords, charge, energy from mol where id = ?", (key,)).fetchone()


def create(path, n=2048):
    g = np.random.default_rng(6)
    con = sqlite3.connect(path)
    con.execute("create table mol (id integer primary key, coords blob, charge blob, energy real)")
    rows = []
    for i in range(n):
        xyz = g.normal(0, 2, (ATOMS, 3)).astype(np.float32)
        q = g.integers(1, 9, ATOMS).astype(np.float32)
        d = np.linalg.norm(xyz[:, None] - xyz[None], axis=-1) + np.eye(ATOMS)
        rows.append((i, xyz.tobytes(), q.tobytes(), float((np.outer(q, q) / d).sum() / 5000)))
    con.executemany("insert into mol values (?,?,?,?)", rows)
    con.commit()
    con.close()


class Molecules(Dataset):
    def __init__(self, store, keys, rattle=0.0):
        self.store, self.keys, self.rattle = store, keys, rattle
        self.centres = np.linspace(0, 8, 16, dtype=np.float32)

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        coords, charge, energy = self.store.fetch(self.keys[i])
        xyz = np.frombuffer(coords, np.float32).reshape(ATOMS, 3)
        if self.rattle:
            xyz = xyz + np.random.normal(0, self.rattle, xyz.shape).astype(np.float32)
        q = np.frombuffer(charge, np.float32)
        d = np.linalg.norm(xyz[:, None] - xyz[None], axis=-1)
        rbf = np.exp(-(d[..., None] - self.centres) ** 2)
        return torch.from_numpy(rbf.astype(np.float32)), torch.from_numpy(q.copy()), torch.tensor(energy, dtype=torch.float32)


class SchNetish(nn.Module):
    def __init__(self, f=128):
        super().__init__()
        self.emb = nn.Embedding(10, f)
        self.filters = nn.ModuleList(nn.Sequential(nn.Linear(16, 64), nn.Softplus(), nn.Linear(64, f)) for _ in range(2))
        self.mix = nn.ModuleList(nn.Sequential(nn.Linear(f, f), nn.Softplus(), nn.Linear(f, f)) for _ in range(2))
        self.out = nn.Linear(f, 1)

    def forward(self, rbf, q):
        h = self.emb(q.long())
        for filt, mix in zip(self.filters, self.mix):
            h = h + mix((filt(rbf) * h[:, None]).sum(2))
        return self.out(h).sum((1, 2)) / ATOMS


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "mol.db")
        create(path)
        store = MoleculeStore(path)
        n = store.count()
        train_set = Molecules(store, list(range(0, n - 256)), rattle=0.02)
        val_set = Molecules(store, list(range(n - 256, n)))
        shape = train_set[0][0].shape                       # look at one sample to report the shape
        print("molecules", n, "sample", tuple(shape))
        train = DataLoader(train_set, 32, shuffle=True, num_workers=2, persistent_workers=True)
        val = DataLoader(val_set, 64, num_workers=1, persistent_workers=True)
        net = SchNetish()
        opt = torch.optim.Adam(net.parameters(), 5e-4)
        for epoch in range(3):
            begin = t = time.time()
            wait = 0.0
            for rbf, q, e in train:
                wait += time.time() - t
                loss = nn.functional.mse_loss(net(rbf, q), e)
                opt.zero_grad()
                loss.backward()
                opt.step()
                t = time.time()
            with torch.no_grad():
                mae = torch.cat([(net(r, q) - e).abs() for r, q, e in val]).mean().item()
            print(f"epoch {epoch} train {loss.item():.4f} val mae {mae:.4f} {time.time() - begin:.1f}s data {wait:.2f}s", flush=True)


if __name__ == "__main__":
    main()
