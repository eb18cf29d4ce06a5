# cause: workers-restarted
"""News topic classifier with a greedy sub-word tokenizer; small labelled set, many epochs."""
import json
import os
import random
import tempfile
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

WORK = tempfile.mkdtemp(prefix="newsdesk_")
VOCAB_FILE = os.path.join(WORK, "subwords.json")
EPOCHS = 25
MAX_LEN = 48
TOPICS = 6
LETTERS = "etaoinshrdlucmfwypvbgk"


def write_vocab(n=200_000):
    rng = random.Random(0)
    pieces = {c: k for k, c in enumerate(LETTERS, 1)}
    while len(pieces) < n:
        pieces.setdefault("".join(rng.choices(LETTERS, k=rng.randint(2, 9))), len(pieces) + 1)
    with open(VOCAB_FILE, "w") as f:
        json.dump(pieces, f)


def write_articles(n=320):
    rng = random.Random(1)
    out = []
    for _ in range(n):
        topic = rng.randrange(TOPICS)
        words = ["".join(rng.choices(LETTERS[topic:topic + 14], k=rng.randint(3, 8))) for _ in range(30)]
        out.append((" ".join(words), topic))
    return out


class SubwordTokenizer:
    """Longest match first over a character trie."""

    END = "\0"

    def __init__(self, path):
        with open(path) as f:
            vocab = json.load(f)
        self.root = {}
        for piece, idx in vocab.items():
            node = self.root
            for ch in piece:
                node = node.setdefault(ch, {})
            node[self.END] = idx

    def __call__(self, text):
        ids, i = [], 0
        text = text.replace(" ", "")
        while i < len(text) and len(ids) < MAX_LEN:
            node, j, best, nxt = self.root, i, 0, i + 1
            while j < len(text) and text[j] in node:
                node = node[text[j]]
                j += 1
                if self.END in node:
                    best, nxt = node[self.END], j
            ids.append(best)
            i = nxt
        return ids + [0] * (MAX_LEN - len(ids))


class Articles(Dataset):
    def __init__(self, rows, vocab_file):
        self.rows = rows
        self.vocab_file = vocab_file
        self._tok = None

    @property
    def tok(self):
        if self._tok is None:
            self._tok = SubwordTokenizer(self.vocab_file)
        return self._tok

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        text, topic = self.rows[i]
        words = text.split()
        random.shuffle(words)
        return torch.tensor(self.tok(" ".join(words))), topic


class BagOfSubwords(nn.Module):
    def __init__(self, vocab, dim=16):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim, mode="mean", sparse=True)
        self.out = nn.Linear(dim, TOPICS)

    def forward(self, x):
        return self.out(self.emb(x))


write_vocab()
articles = write_articles()
train_dl = DataLoader(Articles(articles[:256], VOCAB_FILE), batch_size=16, shuffle=True, num_workers=2)
valid_dl = DataLoader(Articles(articles[256:], VOCAB_FILE), batch_size=64, num_workers=1)
model = BagOfSubwords(200_100)
opt = torch.optim.SGD(model.parameters(), lr=0.5)
best = 0.0
for epoch in range(EPOCHS):
    t0 = time.time()
    model.train()
    running = 0.0
    for x, y in train_dl:
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
    model.eval()
    with torch.no_grad():
        hits = sum((model(x).argmax(1) == y).sum().item() for x, y in valid_dl)
    acc = hits / len(valid_dl.dataset)
    print(f"epoch {epoch:2d} loss {running / len(train_dl):.4f} acc {acc:.3f} took {time.time() - t0:.2f}s", flush=True)
    if acc > best:
        best = acc
        torch.save(model.out.state_dict(), os.path.join(WORK, "best.pt"))
print("best", best)
