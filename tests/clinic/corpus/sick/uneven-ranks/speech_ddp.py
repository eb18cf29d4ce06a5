# cause: uneven-ranks
"""Two-rank keyword spotting with length-bucketed batches under a frame budget."""
import datetime
import os
import socket
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler

WORLD = 2


class Utterances(Dataset):
    def __init__(self, n=240, seed=0):
        rng = np.random.default_rng(seed)
        self.frames = rng.integers(30, 400, n)
        self.words = rng.integers(0, 10, n)

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        wave = rng.normal(0, 1, (self.frames[i], 160)) * (1 + self.words[i])
        mel = np.log1p(np.abs(np.fft.rfft(wave, 256, axis=1))[:, :40])
        return torch.from_numpy(mel.astype(np.float32)), int(self.words[i])


class FrameBudgetSampler(Sampler):
    """Batches of similar length holding at most `budget` frames; utterances are dealt out to the ranks in turn."""

    def __init__(self, frames, rank, world, budget=2400):
        order = np.argsort(frames, kind="stable")
        half = np.array_split(order, world)[rank]
        self.batches, cur, longest = [], [], 0
        for i in half:
            longest = max(longest, frames[i])
            if cur and longest * (len(cur) + 1) > budget:
                self.batches.append(cur)
                cur, longest = [], frames[i]
            cur.append(int(i))
        self.batches.append(cur)
        self.epoch = 0

    def __iter__(self):
        g = np.random.default_rng(self.epoch)
        self.epoch += 1
        return iter([self.batches[k] for k in g.permutation(len(self.batches))])

    def __len__(self):
        return len(self.batches)


def pad(rows):
    mels, words = zip(*rows)
    return nn.utils.rnn.pad_sequence(mels, batch_first=True), torch.tensor(words)


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(40, 32, 5, padding=2)
        self.out = nn.Linear(32, 10)

    def forward(self, x):
        return self.out(self.conv(x.transpose(1, 2)).relu().amax(2))


def worker(rank, port, outdir):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, timeout=datetime.timedelta(seconds=12))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Utterances()
    loader = DataLoader(data, batch_sampler=FrameBudgetSampler(data.frames, rank, WORLD), num_workers=1, collate_fn=pad,
                        persistent_workers=True)
    model = DDP(Spotter())
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    for epoch in range(4):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            torch.save(model.module.state_dict(), os.path.join(outdir, f"epoch{epoch}.pt"))
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
        dist.barrier()      # nobody runs ahead of the checkpoint
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as out:
        mp.spawn(worker, args=(free, out), nprocs=WORLD)
