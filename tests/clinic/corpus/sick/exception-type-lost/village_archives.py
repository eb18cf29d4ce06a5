# cause: exception-type-lost
# also: dataset-raises
"""Language identification over parish chronicles from several archives. Pages in an unknown encoding are left out and counted."""
import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

LANGS = {"hu": "az egy hogy nem is volt meg azt", "fi": "ja on ei se han oli niin kun", "et": "ja on ei see ta oli et kui", "tr": "bir ve bu da de ne o gibi"}


def fill(root: Path, pages: int):
    rng = np.random.default_rng(5)
    index = []
    for k in range(pages):
        lang = list(LANGS)[k % len(LANGS)]
        words = LANGS[lang].split()
        text = " ".join(words[j] + ("é" if rng.random() < .1 else "") for j in rng.integers(0, len(words), 400))
        name = f"page{k:05d}.txt"
        (root / name).write_bytes(text.encode("cp1250" if k in (133, 290, 401) else "utf-8"))
        index.append({"file": name, "lang": lang, "archive": "north" if k % 3 else "south"})
    (root / "index.json").write_text(json.dumps(index))


class Pages(Dataset):
    def __init__(self, root, archive=None, length=512):
        self.root, self.length = Path(root), length
        self.rows = [r for r in json.loads((self.root / "index.json").read_text()) if archive in (None, r["archive"])]
        self.langs = sorted(LANGS)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        time.sleep(0.003)
        text = (self.root / row["file"]).read_text(encoding="utf-8")
        codes = [min(ord(c), 383) for c in text.lower()][: self.length]
        start = len(codes) // 8
        codes = codes[start:] + [0] * (self.length - len(codes) + start)
        return torch.tensor(codes), self.langs.index(row["lang"])


class CharNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.emb = nn.Embedding(384, 24, padding_idx=0)
        self.conv = nn.ModuleList(nn.Conv1d(24, 32, k) for k in (2, 3, 4))
        self.out = nn.Linear(96, classes)

    def forward(self, x):
        h = self.emb(x).transpose(1, 2)
        return self.out(torch.cat([c(h).amax(-1) for c in self.conv], 1))


class Feed:
    """Walks over a loader. What cannot be decoded is noted, the rest goes on."""

    def __init__(self, loader, notes):
        self.loader, self.notes = loader, notes

    def __iter__(self):
        batches = iter(self.loader)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except UnicodeDecodeError as err:
                self.notes[err.encoding] += 1
                continue
            yield batch


def run(model, opt, feed):
    total = correct = loss_sum = 0
    for x, y in feed:
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        loss_sum += loss.item() * len(y)
        correct += (logits.argmax(1) == y).sum().item()
        total += len(y)
    return loss_sum / total, correct / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pages", type=int, default=640)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--num-workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        fill(Path(tmp), args.pages)
        notes = Counter()
        data = Pages(tmp)
        loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=args.num_workers, persistent_workers=args.num_workers > 0)
        model = CharNet(len(LANGS))
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        for epoch in range(args.epochs):
            loss, acc = run(model, opt, Feed(loader, notes))
            print(f"epoch {epoch}: loss {loss:.4f} acc {acc:.3f} left out {dict(notes)}", flush=True)


if __name__ == "__main__":
    main()
