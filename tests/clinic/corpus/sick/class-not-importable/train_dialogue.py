# cause: class-not-importable
"""Response selection for a small chat bot."""
import itertools
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GREET = ["hello", "hi", "good morning", "hey there"]
TOPICS = {"order": ["where is my parcel", "track order", "has it shipped"],
          "refund": ["money back please", "i want a refund", "return this"],
          "hours": ["when do you open", "opening times", "are you open on sunday"]}


def build_pairs(n):
    r = random.Random(8)
    labels = sorted(TOPICS)
    pairs = []
    for _ in range(n):
        y = r.randrange(len(labels))
        pairs.append((f"{r.choice(GREET)} {r.choice(TOPICS[labels[y]])}", y))
    return pairs


def build_vocab(pairs):
    words = sorted(set(itertools.chain.from_iterable(t.split() for t, _ in pairs)))
    return {w: k for k, w in enumerate(words)}


class BaseChat(Dataset):
    def __init__(self, pairs, vocab):
        self.pairs, self.vocab = pairs, vocab

    def __len__(self):
        return len(self.pairs)

    def vector(self, text):
        x = torch.zeros(len(self.vocab))
        for w in text.split():
            if w in self.vocab:
                x[self.vocab[w]] += 1
        return x


class ChatNet(nn.Module):
    def __init__(self, words, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(words, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, classes))

    def forward(self, x):
        return self.layers(x)


def train(model, loader, epochs):
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    for epoch in range(epochs):
        right = n = 0
        for x, y in loader:
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right, n = right + (out.argmax(1) == y).sum().item(), n + len(y)
        print(f"epoch {epoch} accuracy {right / n:.3f}", flush=True)


if __name__ == "__main__":

    class NoisyChat(BaseChat):
        """Drops words at random."""

        def __getitem__(self, i):
            text, y = self.pairs[i]
            kept = [w for w in text.split() if torch.rand(()) > 0.15]
            return self.vector(" ".join(kept)), y

    torch.manual_seed(0)
    pairs = build_pairs(900)
    vocab = build_vocab(pairs)
    loader = DataLoader(NoisyChat(pairs, vocab), batch_size=30, shuffle=True, num_workers=2,
                        multiprocessing_context="spawn")
    train(ChatNet(len(vocab), len(TOPICS)), loader, epochs=2)
