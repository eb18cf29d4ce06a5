# cause: socket-path-too-long
"""Sequence tagging; every experiment keeps all of its files below one run folder."""
import atexit
import datetime
import hashlib
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class Experiment:
    team: str = "document-understanding-and-extraction"
    project: str = "invoice-line-item-tagging-multilingual"
    variant: str = "bigru_small_lr0.003_bs32_warmup100_seed0"
    epochs: int = 2
    batch_size: int = 32
    lr: float = 3e-3


def open_run(exp: Experiment) -> Path:
    digest = hashlib.sha1(repr(asdict(exp)).encode()).hexdigest()[:10]
    base = Path(tempfile.mkdtemp(prefix="runs_"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    run = base / exp.team / exp.project / exp.variant / f"{datetime.date.today():%Y%m%d}-{digest}"
    for sub in ("checkpoints", "logs", "scratch"):
        (run / sub).mkdir(parents=True)
    # spill files of the job belong to the run as well
    os.environ["TMPDIR"] = tempfile.tempdir = str(run / "scratch")
    return run


VOCAB = {w: k for k, w in enumerate("<pad> total net tax due date no. qty item price eur usd 0 1 2 3 4 5 6 7 8 9".split())}
WORDS = [w for w in VOCAB if w != "<pad>"]


class InvoiceLines(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        n = int(torch.randint(6, 30, (), generator=g))
        text = " ".join(WORDS[int(k)] for k in torch.randint(len(WORDS), (n,), generator=g))
        ids = torch.tensor([VOCAB[w] for w in text.split()])
        tags = (ids >= VOCAB["0"]).long() + (ids == VOCAB["eur"]).long() * 2
        return ids, tags


def pad(batch):
    ids, tags = zip(*batch)
    return pad_sequence(ids, True, 0), pad_sequence(tags, True, -100)


class Tagger(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.emb = nn.Embedding(len(VOCAB), width, padding_idx=0)
        self.rnn = nn.GRU(width, width, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * width, 3)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


def loss_of(model, batch):
    ids, tags = batch
    return nn.functional.cross_entropy(model(ids).flatten(0, 1), tags.flatten(), ignore_index=-100)


def main():
    exp = Experiment()
    run = open_run(exp)
    data = InvoiceLines(1400)
    train, dev = Subset(data, range(1200)), Subset(data, range(1200, 1400))
    train_loader = DataLoader(train, exp.batch_size, shuffle=True, num_workers=2, collate_fn=pad)
    dev_loader = DataLoader(dev, 64, collate_fn=pad)
    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), exp.lr)
    best = float("inf")
    for epoch in range(exp.epochs):
        for batch in train_loader:
            loss = loss_of(model, batch)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            dev_loss = sum(loss_of(model, b).item() for b in dev_loader) / len(dev_loader)
        print(f"epoch {epoch} dev {dev_loss:.4f}", flush=True)
        if dev_loss < best:
            best = dev_loss
            torch.save(model.state_dict(), run / "checkpoints" / "best.pt")


if __name__ == "__main__":
    main()
