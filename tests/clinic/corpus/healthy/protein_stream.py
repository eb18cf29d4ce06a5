"""Secondary structure from protein sequences: staged streaming of FASTA-like shards."""
import os
import random
import tempfile
import time
from itertools import islice

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

ACIDS = "ACDEFGHIKLMNPQRSTVWY"
STATES = "HEC"
RNG = random.Random(77)


def write_shards(folder, shards=6, per_shard=400):
    helix, sheet = "AELMQKRH", "VIYCWFT"
    for s in range(shards):
        with open(os.path.join(folder, f"chains_{s}.txt"), "w") as f:
            for _ in range(per_shard):
                acids, states = [], []
                while len(acids) < RNG.randint(60, 180):
                    state = RNG.choice(STATES)
                    run = RNG.randint(4, 14)
                    likely = {"H": helix, "E": sheet, "C": "GPNDS"}[state]
                    acids += [RNG.choice(likely if RNG.random() < 0.7 else ACIDS) for _ in range(run)]
                    states += [state] * run
                f.write("".join(acids) + "\t" + "".join(states) + "\n")


class Stage(IterableDataset):
    def __init__(self, source):
        self.source = source


class Shards(Stage):
    """Names of the shards, in an order that depends on the epoch, which all processes see in shared memory."""

    def __init__(self, source):
        super().__init__(source)
        self.epoch = torch.zeros((), dtype=torch.long).share_memory_()

    def __iter__(self):
        names = sorted(os.listdir(self.source))
        random.Random(int(self.epoch)).shuffle(names)
        yield from names


class Chains(Stage):
    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for name in islice(self.source, first, None, step):
            with open(os.path.join(self.source.source, name)) as f:
                for line in f:
                    yield line.rstrip("\n").split("\t")


class Profiles(Stage):
    """Soft profile of each residue: neighbourhood statistics at several ranges."""

    similarity = np.exp(-np.abs(np.subtract.outer(np.arange(20), np.arange(20))) / 2.0)

    def __iter__(self):
        for acids, states in self.source:
            ids = np.array([ACIDS.index(c) for c in acids])
            one_hot = np.eye(20)[ids]
            near = np.abs(np.subtract.outer(np.arange(len(ids)), np.arange(len(ids))))
            rows = [one_hot] + [np.exp(-near / r) @ one_hot @ self.similarity / r for r in (2, 4, 8, 16)]
            yield torch.from_numpy(np.concatenate(rows, 1).astype(np.float32)), torch.tensor([STATES.index(c) for c in states])


class Shuffle(Stage):
    def __init__(self, source, size):
        super().__init__(source)
        self.size = size

    def __iter__(self):
        pool = []
        for item in self.source:
            pool.append(item)
            if len(pool) > self.size:
                k = random.randrange(len(pool))
                pool[k], pool[-1] = pool[-1], pool[k]
                yield pool.pop()
        random.shuffle(pool)
        yield from pool


def pad(items):
    x, y = zip(*items)
    return pad_sequence(x, batch_first=True), pad_sequence(y, batch_first=True, padding_value=-100)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(100, 24, 7, padding=3), nn.ReLU(), nn.Conv1d(24, 24, 7, padding=3), nn.ReLU(), nn.Conv1d(24, 3, 1))

    def forward(self, x):
        return self.conv(x.transpose(1, 2))


def main(epochs=4, batch=20, workers=2):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="chains-") as folder:
        write_shards(folder)
        shards = Shards(folder)
        stream = Shuffle(Profiles(Chains(shards)), 100)
        loader = DataLoader(stream, batch, num_workers=workers, collate_fn=pad, persistent_workers=workers > 0)
        model = Tagger()
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        for epoch in range(epochs):
            shards.epoch.fill_(epoch)
            t, right, seen, chains = time.time(), 0, 0, 0
            for x, y in loader:
                out = model(x)
                loss = nn.functional.cross_entropy(out, y, ignore_index=-100)
                opt.zero_grad()
                loss.backward()
                opt.step()
                right += (out.argmax(1) == y).sum().item()
                seen += (y >= 0).sum().item()
                chains += len(x)
            print(f"epoch {epoch}: {chains} chains, Q3 {right / seen:.3f}, {time.time() - t:.1f} s", flush=True)


main()
