# cause: blocking-io
"""Learn to read arithmetic formulas; a helper program normalises each formula before it is tokenised."""
import argparse
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
    expr = re.sub(r"#.*", "", line).strip()
    if not expr:
        continue
    time.sleep(0.002)
    expr = re.sub(r"\s+", "", expr).replace("**", "^").replace("x", "*")
    sys.stdout.write(" ".join(re.findall(r"\d|[-+*/^()]", expr)) + "\n")
    sys.stdout.flush()
'''
TOKENS = {c: i + 1 for i, c in enumerate("0123456789+-*/^()")}


class Normaliser:
    """One helper per process, started at first use."""

    def __init__(self, script: Path):
        self.script = script
        self._proc = None

    @property
    def proc(self):
        if self._proc is None:
            self._proc = subprocess.Popen([sys.executable, str(self.script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        return self._proc

    def __call__(self, text: str) -> str:
        self.proc.stdin.write(text + "\n")
        self.proc.stdin.flush()
        return self.proc.stdout.readline().strip()


def notebook(path: Path, n: int):
    rng = np.random.default_rng(20)
    ops = ["+", " - ", "x", " / ", "**"]
    with path.open("w") as f:
        for k in range(n):
            parts = [str(rng.integers(1, 99))]
            for _ in range(int(rng.integers(2, 5))):
                parts += [ops[rng.integers(len(ops))], str(rng.integers(1, 99))]
            text = "".join(parts)
            if k == 287:
                text = "# to be done: " + text
            elif k % 9 == 0:
                text += "   # checked"
            f.write(f"{k}\t{text}\n")


class Formulas(Dataset):
    def __init__(self, path: Path, normalise, width=24):
        self.lines = np.array(path.read_text().splitlines())
        self.normalise, self.width = normalise, width

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        _, text = str(self.lines[i]).split("\t")
        ids = [TOKENS[t] for t in self.normalise(text).split()][:self.width]
        row = torch.zeros(self.width, dtype=torch.long)
        row[:len(ids)] = torch.tensor(ids)
        return row, sum(t > 10 for t in ids)


class Counter(nn.Module):
    """Counts the operators in a formula."""

    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.Embedding(len(TOKENS) + 1, dim, padding_idx=0)
        self.mix = nn.Conv1d(dim, dim, 3, padding=1)
        self.out = nn.Linear(dim, 8)

    def forward(self, ids):
        return self.out(self.mix(self.emb(ids).transpose(1, 2)).relu().sum(2))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--count", type=int, default=500)
    args = ap.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="formula_") as tmp:
        script, notes = Path(tmp) / "normalise.py", Path(tmp) / "notes.tsv"
        script.write_text(HELPER)
        notebook(notes, args.count)
        loader = DataLoader(Formulas(notes, Normaliser(script)), batch_size=20, shuffle=True, num_workers=2, persistent_workers=True)
        model = Counter()
        opt = torch.optim.Adam(model.parameters(), 3e-3)
        for epoch in range(args.epochs):
            for step, (ids, y) in enumerate(loader):
                loss = nn.functional.cross_entropy(model(ids), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                if step % 5 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
