# cause: tensor-freed-while-pickling
# also: rng-repeated
"""Coordinate denoising on small molecules (score matching on conformers)."""
import argparse
import contextlib
import json
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, RandomSampler

log = logging.getLogger("denoise")
ELEMENTS = ["H", "C", "N", "O", "F", "S"]


class NoiseSchedule:
    """Log-uniform noise levels, drawn from a stream of its own so that runs can be compared."""

    def __init__(self, lo=0.02, hi=0.6, seed=17):
        self.lo, self.hi = lo, hi
        self.gen = torch.Generator()
        self.gen.manual_seed(seed)

    def perturb(self, pos):
        u = torch.rand((), generator=self.gen)
        sigma = self.lo * (self.hi / self.lo) ** u
        eps = torch.randn(pos.shape, generator=self.gen)
        return pos + sigma * eps, eps, sigma


class RandomRotation:
    def __call__(self, pos):
        q, r = torch.linalg.qr(torch.randn(3, 3))
        return pos @ (q * torch.sign(torch.diagonal(r)))


class Conformers(Dataset):
    def __init__(self, path, noise, atoms=24):
        with np.load(path) as f:
            self.z, self.pos, self.start = f["z"], f["pos"], f["start"]
        self.noise, self.atoms = noise, atoms
        self.rotate = RandomRotation()

    def __len__(self):
        return len(self.start) - 1

    def __getitem__(self, i):
        span = slice(self.start[i], self.start[i + 1])
        pos, z = torch.from_numpy(self.pos[span]), torch.from_numpy(self.z[span]).long()
        pos = self.rotate(pos - pos.mean(0))
        noisy, eps, sigma = self.noise.perturb(pos)
        pad = self.atoms - len(pos)
        mask = torch.cat([torch.ones(len(pos)), torch.zeros(pad)])
        padded = [torch.cat([t, t.new_zeros(pad, 3)]) for t in (noisy, eps)]
        return {"z": torch.cat([z, z.new_zeros(pad)]), "pos": padded[0], "eps": padded[1], "sigma": sigma, "mask": mask}


def make_subsets(root, names=("qm", "drugs"), n=120):
    g = np.random.default_rng(0)
    paths = []
    for name in names:
        sizes = g.integers(8, 24, size=n)
        total = int(sizes.sum())
        np.savez(Path(root) / f"{name}.npz", z=g.integers(0, len(ELEMENTS), size=total, dtype=np.int8),
                 pos=g.standard_normal((total, 3)).astype(np.float32) * 2, start=np.concatenate([[0], np.cumsum(sizes)]))
        paths.append(Path(root) / f"{name}.npz")
    return paths


class PairLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * dim + 1, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.node = nn.Linear(2 * dim, dim)
        self.coord = nn.Linear(dim, 1)

    def forward(self, h, pos, mask):
        d = pos[:, :, None] - pos[:, None]
        n = h.shape[1]
        pair = torch.cat([h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1),
                          d.pow(2).sum(-1, keepdim=True)], -1)
        m = self.edge(pair) * mask[:, None, :, None]
        shift = (self.coord(m) * d / (1 + d.norm(dim=-1, keepdim=True))).mean(2)
        return h + self.node(torch.cat([h, m.sum(2)], -1)), pos + shift


class Denoiser(nn.Module):
    def __init__(self, dim=48, layers=2):
        super().__init__()
        self.embed = nn.Embedding(len(ELEMENTS), dim)
        self.layers = nn.ModuleList(PairLayer(dim) for _ in range(layers))

    def forward(self, b):
        h, pos = self.embed(b["z"]) + b["sigma"].log()[:, None, None], b["pos"]
        for layer in self.layers:
            h, pos = layer(h, pos, b["mask"])
        return (b["pos"] - pos) / b["sigma"][:, None, None]


@contextlib.contextmanager
def timed(what):
    t0 = time.time()
    yield
    log.info("%s took %.1fs", what, time.time() - t0)


def main(args):
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as root:
        noise = NoiseSchedule(seed=args.seed)
        data = ConcatDataset([Conformers(p, noise) for p in make_subsets(root)])
        draws = RandomSampler(data, replacement=True, num_samples=args.samples_per_epoch)
        loader = DataLoader(data, args.batch_size, sampler=draws, num_workers=args.num_workers, drop_last=True,
                            multiprocessing_context=args.mp_context, persistent_workers=True)
        net = Denoiser()
        opt = torch.optim.AdamW(net.parameters(), args.lr)
        log.info("%d conformers, %d batches", len(data), len(loader))
        for epoch in range(args.epochs):
            with timed(f"epoch {epoch}"):
                total = 0.0
                for b in loader:
                    err = ((net(b) - b["eps"]).pow(2).sum(-1) * b["mask"]).sum() / b["mask"].sum()
                    opt.zero_grad()
                    err.backward()
                    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                    opt.step()
                    total += err.item()
            log.info("epoch %d loss %.4f", epoch, total / len(loader))
            (Path(root) / "log.jsonl").open("a").write(json.dumps({"epoch": epoch, "loss": total}) + "\n")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=24)
    ap.add_argument("--samples-per-epoch", type=int, default=1920)
    ap.add_argument("--num-workers", type=int, default=2)
    ap.add_argument("--mp-context", default="spawn")        # the cluster's MPI does not like fork
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=17)
    main(ap.parse_args())
