# cause: thread-pool-after-fork
import logging
import math
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("pulsar")


def synth_filterbank(n_beams, n_chan, n_time, seed):
    g = torch.Generator().manual_seed(seed)
    beams = torch.randn(n_beams, n_chan, n_time, generator=g)
    target = torch.zeros(n_beams, dtype=torch.long)
    t = torch.arange(n_time)
    for b in range(n_beams):
        if b % 3 == 0:
            period = 37 + b % 11
            beams[b] += 1.4 * ((t % period) < 3).float()
            target[b] = 1
    return beams, target


class Whitener:
    """Removes the receiver band shape; fitted once over all beams."""

    def fit(self, beams):
        flat = beams.permute(1, 0, 2).reshape(beams.shape[1], -1)
        self.mean = flat.mean(1, keepdim=True)
        cov = (flat - self.mean) @ (flat - self.mean).T / flat.shape[1]
        vals, vecs = torch.linalg.eigh(cov + 1e-3 * torch.eye(len(cov)))
        self.matrix = vecs @ torch.diag(vals.rsqrt()) @ vecs.T
        return self

    def __call__(self, beam):
        return self.matrix @ (beam - self.mean)


class FoldedBeams(Dataset):
    def __init__(self, beams, target, whiten, n_trials=24):
        self.beams, self.target, self.whiten = beams, target, whiten
        self.periods = [30 + k for k in range(n_trials)]

    def __len__(self):
        return len(self.beams)

    def __getitem__(self, i):
        clean = self.whiten(self.beams[i])
        clean = torch.tanh(clean) * clean.abs().sqrt()
        folded = []
        for p in self.periods:
            n = clean.shape[1] // p * p
            prof = clean[:, :n].reshape(clean.shape[0], -1, p).mean((0, 1))
            folded.append(torch.stack([prof.max(), prof.std(), prof.min()]))
        return torch.stack(folded).flatten(), self.target[i]


def spread_threads(worker_id):
    # folding is heavy: let the numeric kernels use every core of the node
    torch.set_num_threads(max(2, os.cpu_count() or 2))


class Trainer:
    def __init__(self, loader, epochs):
        self.loader, self.epochs = loader, epochs
        self.net = nn.Sequential(nn.LayerNorm(72), nn.Linear(72, 64), nn.SiLU(), nn.Linear(64, 2))
        self.opt = torch.optim.SGD(self.net.parameters(), 0.05, momentum=0.9)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda e: 0.5 * (1 + math.cos(math.pi * e / epochs)))

    def fit(self):
        for epoch in range(self.epochs):
            seen, loss_sum = 0, 0.0
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.net(x), y)
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                seen += len(y)
                loss_sum += loss.item() * len(y)
            self.sched.step()
            log.info("epoch %d: %d beams, loss %.4f", epoch, seen, loss_sum / seen)


def main():
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)6d %(message)s")
    torch.manual_seed(1)
    beams, target = synth_filterbank(120, 96, 4096, seed=2)
    whiten = Whitener().fit(beams)
    log.info("whitener ready, condition %.2f", float(torch.linalg.cond(whiten.matrix)))
    data = FoldedBeams(beams, target, whiten)
    loader = DataLoader(data, batch_size=12, shuffle=True, num_workers=2, worker_init_fn=spread_threads, persistent_workers=True)
    Trainer(loader, epochs=4).fit()


if __name__ == "__main__":
    main()
