"""Contact maps from synthetic residue profiles. Alignments are drawn on demand; a few are kept."""
import functools
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

WORKERS, BATCH, EPOCHS, FAMILIES = 2, 8, 4, 240


class ProfileCache:
    """A few recent alignments. The lock and the cache itself stay behind when the object travels."""

    def __init__(self, seeds, keep=16):
        self.seeds, self.keep = seeds, keep
        self._setup()

    def _setup(self):
        self.lock = threading.Lock()
        self.get = functools.lru_cache(maxsize=self.keep)(self._make)

    def __getstate__(self):
        return {"seeds": np.asarray(self.seeds), "keep": self.keep}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._setup()

    def _make(self, k):
        rng = np.random.default_rng(self.seeds[k])
        length = int(rng.integers(40, 56))
        walk = np.cumsum(rng.normal(0, 1, (length, 3)), 0)
        walk -= np.linspace(0, 1, length)[:, None] * walk[-1]
        dist = np.linalg.norm(walk[:, None] - walk[None], axis=-1)
        contact = dist < 2.5
        coupled = np.linalg.cholesky(np.exp(-dist / 2) + 0.05 * np.eye(length))
        alignment = coupled @ rng.normal(size=(length, 160))
        return alignment, contact

    def __getitem__(self, k):
        with self.lock:
            return self.get(int(k))


class Families(Dataset):
    def __init__(self, cache, crop=40):
        self.cache, self.crop = cache, crop

    def __len__(self):
        return len(self.cache.seeds)

    @staticmethod
    def mutual_information(x, bins=8):
        """MI of each pair of columns, with the average product correction."""
        ranks = x.argsort(1).argsort(1) * bins // x.shape[1]
        onehot = (ranks[..., None] == np.arange(bins)).astype(np.float32)
        n, m = len(x), x.shape[1]
        mi = np.zeros((n, n), np.float32)
        for i in range(n):
            joint = np.einsum("ma,nmb->nab", onehot[i], onehot) / m + 1e-4
            outer = joint.sum(2, keepdims=True) * joint.sum(1, keepdims=True)
            mi[i] = (joint * np.log(joint / outer)).sum((1, 2))
        return mi - mi.mean(0) * mi.mean(1)[:, None] / mi.mean()

    def __getitem__(self, k):
        alignment, contact = self.cache[k]
        rows = np.random.choice(alignment.shape[1], 96, replace=False)
        start = np.random.randint(0, len(alignment) - self.crop + 1)
        part = slice(start, start + self.crop)
        x = alignment[part][:, rows]
        planes = np.stack([np.corrcoef(x), self.mutual_information(x)]).astype(np.float32)
        return torch.from_numpy(planes), torch.from_numpy(contact[part, part].astype(np.float32))


class ContactNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.inp = nn.Conv2d(2, w, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(w, w, 3, padding=d, dilation=d) for d in (1, 2, 4))
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        for block in self.blocks:
            h = h + torch.relu(block(h))
        return self.out(h).squeeze(1)


def long_range_precision(logits, truth, gap=6):
    n = truth.shape[-1]
    far = torch.ones(n, n).triu(gap).bool()
    top = logits[:, far].topk(n // 2, dim=1).indices
    return truth[:, far].gather(1, top).mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    families = Families(ProfileCache(np.random.default_rng(3).integers(0, 2**31, FAMILIES)))
    options = dict(batch_size=BATCH, num_workers=WORKERS, persistent_workers=True)
    train = DataLoader(Subset(families, range(200)), shuffle=True, **options)
    val = DataLoader(Subset(families, range(200, FAMILIES)), **options)
    net = ContactNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(EPOCHS):
        began = time.time()
        for x, y in train:
            loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            precision = np.mean([long_range_precision(net(x), y) for x, y in val])
        print(f"epoch {epoch}: loss {loss.item():.3f} P@L/2 {precision:.3f} {time.time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
