"""Predict the sign of a formula. A helper program per process cleans the text; it always answers, and is given up on after a while."""
import argparse
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HELPER = r'''
import re, sys, time
for line in sys.stdin:
    expr = re.sub(r"#.*", "", line)
    time.sleep(0.003)
    sys.stdout.write(" ".join(re.findall(r"\d|[-+*()]", expr)) + "\n")
    sys.stdout.flush()
'''
CHARS = {c: i + 1 for i, c in enumerate("0123456789+-*()")}


class HelperLost(RuntimeError):
    pass


class Cleaner:
    def __init__(self, script, patience=20.0):
        self.script, self.patience, self.proc = script, patience, None

    def start(self):
        self.proc = subprocess.Popen([sys.executable, self.script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.ready = selectors.DefaultSelector()
        self.ready.register(self.proc.stdout, selectors.EVENT_READ)

    def __call__(self, text):
        if self.proc is None:
            self.start()
        self.proc.stdin.write(text + "\n")
        if not self.ready.select(self.patience):
            self.proc.kill()
            raise HelperLost(f"no answer for {text!r} in {self.patience} s")
        return self.proc.stdout.readline().split()


def notebook(path, n):
    rng = np.random.default_rng(77)
    rows = []
    for k in range(n):
        a, b, c = rng.integers(1, 90, 3)
        text = f"{a} - {b}*({c} - {rng.integers(1, 90)})" if k % 40 else "# left empty"
        value = eval(text) if k % 40 else 0
        rows.append(f"{int(value > 0)}\t{text}")
    path.write_text("\n".join(rows))


class Formulas(Dataset):
    WIDTH = 20

    def __init__(self, path, clean):
        self.rows = np.array(path.read_text().split("\n"))
        self.clean = clean

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        label, text = str(self.rows[i]).split("\t")
        ids = [CHARS[t] for t in self.clean(text)][:self.WIDTH]
        return torch.tensor(ids + [0] * (self.WIDTH - len(ids))), float(label)


class Sign(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.emb = nn.Embedding(len(CHARS) + 1, dim, padding_idx=0)
        self.rnn = nn.LSTM(dim, 128, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(256, 1)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0].mean(1)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--count", type=int, default=560)
    args = ap.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="signs_") as tmp:
        script, notes = Path(tmp) / "clean.py", Path(tmp) / "notes.tsv"
        script.write_text(HELPER)
        notebook(notes, args.count)
        loader = DataLoader(Formulas(notes, Cleaner(str(script))), batch_size=16, shuffle=True, num_workers=2,
                            persistent_workers=True, timeout=60)
        model = Sign()
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        for epoch in range(args.epochs):
            total = 0.0
            for ids, y in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(ids), y.float())
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
