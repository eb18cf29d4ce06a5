# cause: exception-not-picklable
"""Categorise card transactions from monthly statement exports (one text file per account)."""
import argparse
import dataclasses
import logging
import re
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

log = logging.getLogger("statements")
CATEGORIES = ["grocery", "rent", "fuel", "travel", "salary", "fees"]
LINE = re.compile(r"^(\d{4}-\d\d-\d\d);([^;]+);(-?\d+\.\d\d);(\w+)$")
RowProblem = dataclasses.make_dataclass("RowProblem", ["account", "row", "text"], bases=(ValueError,))
MERCHANTS = [f"{stem} {i:03d}" for stem in ("MARKT", "IMMO", "TANK", "BAHN", "LOHN", "BANK") for i in range(30)]


def write_exports(root: Path, accounts: int, rows: int, seed: int):
    rng = np.random.default_rng(seed)
    for a in range(accounts):
        out = []
        for r in range(rows):
            c = int(rng.integers(len(CATEGORIES)))
            amount = f"{rng.normal(-60 * (c + 1), 12):.2f}"
            if a == 5 and r == 31:
                amount = amount.replace(".", ",")
            out.append(f"2024-{1 + r % 12:02d}-{1 + r % 28:02d};{MERCHANTS[30 * c + int(rng.integers(30))]} ref {rng.integers(1e9)};{amount};{CATEGORIES[c]}")
        (root / f"account_{a:03d}.txt").write_text("\n".join(out))


@dataclasses.dataclass
class Config:
    accounts: int = 10
    rows: int = 60
    batch: int = 16
    workers: int = 2
    epochs: int = 2
    lr: float = 3e-3
    width: int = 96


class Account(Dataset):
    def __init__(self, path: Path, buckets=1024):
        self.path, self.buckets = path, buckets
        self.rows = sum(1 for _ in path.open())

    def __len__(self):
        return self.rows

    def parse(self, row, text):
        m = LINE.match(text)
        if m is None:
            raise RowProblem(self.path.stem, row, text)
        day, merchant, amount, category = m.groups()
        return day, merchant, float(amount), CATEGORIES.index(category)

    def featurise(self, merchant):
        grams = np.zeros(self.buckets, np.float32)
        s = f"^{merchant.lower()}$"
        for n in (2, 3, 4):
            for i in range(len(s) - n + 1):
                h = 0
                for ch in s[i:i + n]:
                    h = (h * 131 + ord(ch)) % 1000003
                grams[h % self.buckets] += 1
        return grams / max(1.0, np.linalg.norm(grams))

    def __getitem__(self, i):
        text = self.path.read_text().splitlines()[i]
        time.sleep(0.003)  # the export share is mounted over the network
        day, merchant, amount, y = self.parse(i, text)
        extra = np.array([amount / 400, int(day[5:7]) / 12], np.float32)
        return np.concatenate([self.featurise(merchant), extra]), y


class Classifier(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, len(CATEGORIES)))

    def forward(self, x):
        return self.body(x)


def train(cfg: Config, root: Path):
    data = ConcatDataset([Account(p) for p in sorted(root.glob("*.txt"))])
    loader = DataLoader(data, cfg.batch, shuffle=True, num_workers=cfg.workers, persistent_workers=True)
    model = Classifier(1026, cfg.width)
    opt = torch.optim.AdamW(model.parameters(), cfg.lr)
    for epoch in range(cfg.epochs):
        total, hits, seen = 0.0, 0, 0
        for step, (x, y) in enumerate(loader):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(y)
            hits += (logits.argmax(1) == y).sum().item()
            seen += len(y)
            if step % 10 == 0:
                log.info("epoch %d step %d/%d loss %.3f", epoch, step, len(loader), loss.item())
        log.info("epoch %d: loss %.3f accuracy %.3f", epoch, total / seen, hits / seen)


def main():
    parser = argparse.ArgumentParser()
    for f in dataclasses.fields(Config):
        parser.add_argument(f"--{f.name}", type=type(f.default), default=f.default)
    cfg = Config(**vars(parser.parse_args()))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(11)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="statements_"))
    try:
        write_exports(root, cfg.accounts, cfg.rows, seed=7)
        train(cfg, root)
    except RowProblem as problem:
        log.error("account %s, row %d does not parse: %r", problem.account, problem.row, problem.text)
        raise SystemExit(1)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
