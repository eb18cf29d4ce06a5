"""Which season does a renga verse belong to? Bidirectional encoder over word ids."""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

PAD, BOS, EOS = 0, 1, 2
SEASONS = ["spring", "summer", "autumn", "winter"]
STEMS = {"spring": "plum frog mist lark", "summer": "cicada heat lotus fan", "autumn": "moon deer maple crow", "winter": "snow plover frost fire"}
COMMON = "old pond the a of in sound water road evening no one wind".split()


def write(path: Path, count: int):
    rng = np.random.default_rng(55)
    with path.open("w") as f:
        for _ in range(count):
            season = SEASONS[rng.integers(4)]
            words = list(rng.choice(COMMON, rng.integers(8, 15))) + list(rng.choice(STEMS[season].split(), 2))
            rng.shuffle(words)
            f.write(json.dumps({"text": " ".join(words), "season": season}) + "\n")


class Vocabulary:
    def __init__(self):
        words = sorted(set(COMMON) | {w for v in STEMS.values() for w in v.split()})
        self.ids = {w: i + 3 for i, w in enumerate(words)}

    def __len__(self):
        return len(self.ids) + 3

    def encode(self, text):
        return [self.ids[w] for w in text.split()]


def framed(ids):
    """Begin and end marks, as the encoder expects them."""
    ids = list(ids)
    ids.insert(0, BOS)
    ids.append(EOS)
    return ids


class Verses(Dataset):
    def __init__(self, path: Path, vocab, prepare=framed):
        self.prepare = prepare
        self.items = []
        with path.open() as f:
            for line in f:
                row = json.loads(line)
                self.items.append((vocab.encode(row["text"]), SEASONS.index(row["season"])))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        ids, season = self.items[i]
        time.sleep(0.003)  # glosses come from the dictionary file
        return torch.tensor(self.prepare(ids)), season


class ByLength(Sampler):
    """Batches of verses of about the same length, in random order."""

    def __init__(self, lengths, batch):
        order = np.argsort(lengths, kind="stable")
        self.batches = [order[k:k + batch].tolist() for k in range(0, len(order), batch)]

    def __iter__(self):
        for k in torch.randperm(len(self.batches)).tolist():
            yield self.batches[k]

    def __len__(self):
        return len(self.batches)


def pad(samples):
    seqs, seasons = zip(*samples)
    return nn.utils.rnn.pad_sequence(seqs, batch_first=True, padding_value=PAD), torch.tensor(seasons)


class Tagger(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.emb = nn.Embedding(vocab, 96, padding_idx=PAD)
        self.rnn = nn.GRU(96, 128, batch_first=True, bidirectional=True)
        self.out = nn.Linear(256, len(SEASONS))

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.out(h.amax(1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--verses", type=int, default=360)
    ap.add_argument("--epochs", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(14)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "verses.jsonl"
        write(path, args.verses)
        vocab = Vocabulary()
        data = Verses(path, vocab)
        sampler = ByLength([len(ids) for ids, _ in data.items], 15)
        loader = DataLoader(data, batch_sampler=sampler, collate_fn=pad, num_workers=2, persistent_workers=True)
        model = Tagger(len(vocab))
        opt = torch.optim.Adam(model.parameters(), 1e-3)
        for epoch in range(args.epochs):
            losses, tokens = [], 0
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                tokens += int((x != PAD).sum())
            print(f"epoch {epoch}: loss {np.mean(losses):.4f}, {tokens} tokens", flush=True)


if __name__ == "__main__":
    main()
