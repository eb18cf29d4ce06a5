# cause: exception-not-picklable
# also: dataset-raises, bad-sample
"""Promoter / background classification on DNA read from FASTA, one-hot encoded on the fly."""
import os
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

BASES = {b: i for i, b in enumerate("ACGT")}


def _family(*names):
    return {n: type(n.title().replace("_", "") + "Problem", (Exception,), {"code": n}) for n in names}


PROBLEMS = _family("bad_symbol", "too_short", "no_header")


def problem(code, **details):
    text = ", ".join(f"{k}={v}" for k, v in details.items())
    return PROBLEMS[code](f"[{code}] {text}")


@dataclass
class Record:
    name: str
    start: int
    length: int
    label: int


class Fasta:
    def __init__(self, path):
        self.path = path
        self.records = []
        with open(path, "rb") as f:
            line = f.readline()
            while line:
                name, label = line[1:].split()
                start = f.tell()
                seq = f.readline()
                self.records.append(Record(name.decode(), start, len(seq) - 1, int(label)))
                line = f.readline()

    def sequence(self, r):
        with open(self.path, "rb") as f:
            f.seek(r.start)
            return f.read(r.length).decode()


class OneHot:
    def __init__(self, length):
        self.length = length

    def __call__(self, record, seq):
        if len(seq) < self.length:
            raise problem("too_short", record=record.name, length=len(seq))
        out = np.zeros((4, self.length), np.float32)
        for p, b in enumerate(seq[:self.length]):
            if b not in BASES:
                raise problem("bad_symbol", record=record.name, position=p, symbol=b)
            out[BASES[b], p] = 1
        return torch.from_numpy(out)


class Promoters(Dataset):
    def __init__(self, fasta, encode):
        self.fasta, self.encode = fasta, encode

    def __len__(self):
        return len(self.fasta.records)

    def __getitem__(self, i):
        r = self.fasta.records[i]
        return self.encode(r, self.fasta.sequence(r)), r.label


def write_fasta(path, n):
    rng = np.random.default_rng(6)
    with open(path, "w") as f:
        for i in range(n):
            y = int(rng.random() < 0.25)
            s = rng.choice(list("ACGT"), 300)
            if y:
                s[100:108] = list("TATAAAAG")
            if i % 150 == 40:
                s[77] = "N"
            f.write(f">seq{i} {y}\n{''.join(s)}\n")


def main(workers=2):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "all.fa")
        write_fasta(path, 900)
        data = Promoters(Fasta(path), OneHot(300))
        y = torch.tensor([r.label for r in data.fasta.records])
        weights = torch.where(y == 1, 3.0, 1.0)
        loader = DataLoader(data, batch_size=20, sampler=WeightedRandomSampler(weights, len(data)), num_workers=workers)
        net = nn.Sequential(nn.Conv1d(4, 24, 9), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(24, 2))
        opt = torch.optim.Adam(net.parameters(), lr=3e-3)
        for k, (x, t) in enumerate(loader):
            loss = nn.functional.cross_entropy(net(x), t)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"batch {k} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main(workers=int(os.environ.get("W", 2)))
