# cause: unpicklable-dataset
"""Intent classification of short utterances with a byte-pair-like tokeniser."""
import collections
import itertools
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TEMPLATES = {
    0: ["play {} by {}", "put on {}", "i want to hear {}"],
    1: ["weather in {}", "will it rain in {} on {}"],
    2: ["book a table at {} for {}", "reserve {}"],
}
FILL = ["berlin", "monday", "queen", "the harbour", "noon", "jazz", "lisbon", "two"]


def utterances(n, seed=0):
    r = random.Random(seed)
    for _ in range(n):
        y = r.choice(list(TEMPLATES))
        t = r.choice(TEMPLATES[y])
        yield t.format(*(r.choice(FILL) for _ in range(t.count("{}")))), y


class Vocabulary:
    """Ids are handed out in order of appearance."""

    def __init__(self, reserved=("<pad>", "<unk>")):
        self._fresh = (k for k in itertools.count())
        self.ids = {}
        for token in reserved:
            self.add(token)

    def add(self, token):
        if token not in self.ids:
            self.ids[token] = next(self._fresh)
        return self.ids[token]

    def __len__(self):
        return len(self.ids)

    def encode(self, text):
        return [self.ids.get(p, 1) for p in pieces(text)]


def pieces(text):
    return [w[k:k + 3] for w in text.split() for k in range(0, len(w), 3)]


class Intents(Dataset):
    def __init__(self, rows):
        self.rows = list(rows)
        counts = collections.Counter(p for text, _ in self.rows for p in pieces(text))
        self.vocabulary = Vocabulary()
        for piece, c in counts.most_common():
            if c > 1:
                self.vocabulary.add(piece)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        text, y = self.rows[i]
        ids = self.vocabulary.encode(text)[:24]
        return torch.tensor(ids + [0] * (24 - len(ids))), y


class BagOfPieces(nn.Module):
    def __init__(self, vocab, classes):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, 32, mode="mean", padding_idx=0)
        self.fc = nn.Linear(32, classes)

    def forward(self, ids):
        return self.fc(self.emb(ids))


def make_loaders(batch_size):
    train = Intents(utterances(1500))
    ctx = torch.multiprocessing.get_context("forkserver")
    return train, DataLoader(train, batch_size, shuffle=True, num_workers=2, multiprocessing_context=ctx)


def main():
    torch.manual_seed(1)
    train, loader = make_loaders(50)
    net = BagOfPieces(len(train.vocabulary), len(TEMPLATES))
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    for epoch in range(3):
        right = 0
        for x, y in loader:
            out = net(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (out.argmax(1) == y).sum().item()
        print(f"epoch {epoch} accuracy {right / len(train):.3f}", flush=True)


if __name__ == "__main__":
    main()
