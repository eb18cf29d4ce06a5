# cause: uneven-ranks
"""Masked-frame pre-training on speech feature shards, data parallel on one host."""
import argparse
import json
import os
import socket
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

N_MELS = 40


def build_corpus(root, hours=(60, 44, 71, 38, 66, 41, 58, 35)):
    """One .npz per recording session; sessions differ in the number of utterances."""
    rng = np.random.default_rng(11)
    entries = []
    for s, n_utts in enumerate(hours):
        lengths = rng.integers(40, 160, size=n_utts)
        feats = rng.standard_normal((int(lengths.sum()), N_MELS)).astype(np.float32)
        path = Path(root) / f"session_{s:03d}.npz"
        np.savez(path, feats=feats, lengths=lengths)
        entries.append({"path": str(path), "utts": int(n_utts), "frames": int(lengths.sum())})
    manifest = Path(root) / "manifest.json"
    manifest.write_text(json.dumps(entries))
    return str(manifest)


class SessionStream(IterableDataset):
    """Streams utterances session by session and packs them up to a frame budget."""

    def __init__(self, manifest, rank, world, max_frames=1200, shuffle_buffer=32):
        self.entries = json.loads(Path(manifest).read_text())
        self.rank, self.world = rank, world
        self.max_frames = max_frames
        self.shuffle_buffer = shuffle_buffer
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def _my_sessions(self):
        mine = self.entries[self.rank::self.world]
        info = get_worker_info()
        return mine if info is None else mine[info.id::info.num_workers]

    def _utterances(self):
        for entry in self._my_sessions():
            with np.load(entry["path"]) as z:
                feats, lengths = z["feats"], z["lengths"]
            ends = np.cumsum(lengths)
            for end, n in zip(ends, lengths):
                yield feats[end - n:end]

    def _shuffled(self):
        g = np.random.default_rng((self.epoch, self.rank, getattr(get_worker_info(), "id", 0)))
        buf = []
        for utt in self._utterances():
            buf.append(utt)
            if len(buf) >= self.shuffle_buffer:
                yield buf.pop(int(g.integers(len(buf))))
        while buf:
            yield buf.pop(int(g.integers(len(buf))))

    def __iter__(self):
        pack, longest = [], 0
        for utt in self._shuffled():
            longest = max(longest, len(utt))
            if pack and longest * (len(pack) + 1) > self.max_frames:
                yield self._pad(pack)
                pack, longest = [], len(utt)
            pack.append(utt)
        if pack:
            yield self._pad(pack)

    @staticmethod
    def _pad(pack):
        n = max(len(u) for u in pack)
        out = torch.zeros(len(pack), n, N_MELS)
        for i, u in enumerate(pack):
            out[i, :len(u)] = torch.from_numpy(u)
        return out, torch.tensor([len(u) for u in pack])


class Encoder(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.inp = nn.Linear(N_MELS, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, N_MELS)

    def forward(self, x, mask):
        h, _ = self.rnn(torch.relu(self.inp(x.masked_fill(mask[..., None], 0.0))))
        return self.out(h)


def run(rank, world, port, manifest, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=args.dist_timeout))
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + rank)
    stream = SessionStream(manifest, rank, world)
    loader = DataLoader(stream, batch_size=None, num_workers=args.workers)
    model = DDP(Encoder())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        stream.set_epoch(epoch)
        t0, total, steps = time.time(), 0.0, 0
        for feats, lengths in loader:
            mask = torch.rand(feats.shape[:2]) < 0.15
            loss = (model(feats, mask) - feats)[mask].pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total, steps = total + loss.item(), steps + 1
            if rank == 0 and steps % 10 == 0:
                print(f"epoch {epoch} step {steps} loss {loss.item():.4f}", flush=True)
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch} done: {total / steps:.4f}, {steps} steps, {time.time() - t0:.1f}s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--dist-timeout", type=int, default=10)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as root:
        manifest = build_corpus(root)
        mp.spawn(run, nprocs=2, args=(2, port, manifest, args))
