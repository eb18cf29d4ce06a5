# cause: too-many-workers
# also: transform-bound, not-fed-fast-enough
"""Surface defect classifier; texture descriptors are computed in the loader."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


SUBPIXELS = [(a / 3, b / 3) for a in range(3) for b in range(3)]


def gabor_bank(n, size):
    """Filter bank, orthogonalised so that the responses are comparable."""
    bank = []
    for k in range(n):
        ang, freq = np.pi * k / n, 0.1 + 0.3 * (k % 5) / 5
        g = np.zeros((size, size))
        for y in range(size):
            for x in range(size):
                for dy, dx in SUBPIXELS:
                    v, u = y + dy - size / 2, x + dx - size / 2
                    r = u * np.cos(ang) + v * np.sin(ang)
                    g[y, x] += np.cos(2 * np.pi * freq * r) * np.exp(-(u * u + v * v) / 30) / len(SUBPIXELS)
        bank.append(g.ravel())
    m = np.array(bank)
    for i in range(n):
        for j in range(i):
            m[i] -= (m[i] @ m[j]) * m[j]
        m[i] /= np.linalg.norm(m[i]) + 1e-9
    return m.astype(np.float32)


class Surfaces(Dataset):
    def __init__(self, n, seed=0):
        self.seeds = np.random.SeedSequence(seed).generate_state(n)
        self.bank = None

    def __len__(self):
        return len(self.seeds)

    def setup(self):
        self.bank = gabor_bank(64, 24)

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seeds[i])
        img = rng.standard_normal((44, 44)).astype(np.float32)
        defect = i % 2
        if defect:
            img[10:14, 5:35] += 2.0
        win = np.lib.stride_tricks.sliding_window_view(img, (24, 24))[::4, ::4].reshape(-1, 576)
        resp = np.abs(np.einsum("wp,fp->wf", win, self.bank))
        return torch.from_numpy(np.concatenate([resp.mean(0), resp.max(0)])), defect


def init_worker(_):
    get_worker_info().dataset.setup()


def accuracy(model, loader):
    good = n = 0
    with torch.inference_mode():
        for x, y in loader:
            good += int((model(x).argmax(1) == y).sum())
            n += len(y)
    return good / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--samples", type=int, default=1200)
    ap.add_argument("--workers", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--final-check", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(Surfaces(args.samples), 50, shuffle=True, num_workers=args.workers, worker_init_fn=init_worker, persistent_workers=True)
    model = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        t = time.time()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.3f} {time.time() - t:.1f}s", flush=True)
    print("accuracy", accuracy(model, loader)) if args.final_check else None


if __name__ == "__main__":
    main()
