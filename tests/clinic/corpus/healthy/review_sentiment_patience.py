"""Bag-of-embeddings sentiment model with patience-based stopping checked several times per epoch."""
import copy
import random
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

GOOD = ["lovely", "superb", "crisp", "warm", "funny", "moving"]
BAD = ["dull", "noisy", "flat", "awful", "messy", "tired"]
FILL = ["film", "scene", "actor", "plot", "the", "a", "with", "very", "music", "camera", "and", "long"]
VOCAB = {w: i + 1 for i, w in enumerate(GOOD + BAD + FILL)}


def write_reviews(n, seed):
    rng = random.Random(seed)
    reviews = []
    for _ in range(n):
        label = rng.random() < 0.5
        words = rng.choices(FILL, k=rng.randint(40, 90)) + rng.choices(GOOD if label else BAD, k=6)
        if rng.random() < 0.3:
            words += rng.choices(BAD if label else GOOD, k=3)
        rng.shuffle(words)
        reviews.append((" ".join(words), int(label)))
    return reviews


class Reviews(Dataset):
    MAX = 100

    def __init__(self, reviews, word_dropout=0.0):
        self.reviews = reviews
        self.word_dropout = word_dropout

    def __len__(self):
        return len(self.reviews)

    def __getitem__(self, i):
        text, label = self.reviews[i]
        ids = [VOCAB[w] for w in text.split() if random.random() >= self.word_dropout][:self.MAX]
        ids += [0] * (self.MAX - len(ids))
        return torch.tensor(ids), label


class ConvText(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.emb = nn.Embedding(len(VOCAB) + 1, dim, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(dim, 112, k, padding=k // 2) for k in (3, 5, 7))
        self.out = nn.Linear(336, 2)

    def forward(self, x):
        h = self.emb(x).transpose(1, 2)
        return self.out(torch.cat([c(h).relu().amax(2) for c in self.convs], 1))


class Patience(Exception):
    """raised by the stopper to leave the nested loops"""


class Stopper:
    def __init__(self, patience):
        self.best, self.left, self.patience, self.state = float("inf"), patience, patience, None

    def update(self, value, model):
        if value < self.best - 1e-3:
            self.best, self.left = value, self.patience
            self.state = copy.deepcopy(model.state_dict())
        else:
            self.left -= 1
        if self.left == 0:
            raise Patience


def evaluate(model, loader):
    model.eval()
    total = n = right = 0
    with torch.no_grad():
        for x, y in loader:
            logits = model(x)
            total += nn.functional.cross_entropy(logits, y, reduction="sum").item()
            right += (logits.argmax(1) == y).sum().item()
            n += len(y)
    model.train()
    return total / n, right / n


def fit(max_epochs=20, check_every=25):
    train = DataLoader(Reviews(write_reviews(6400, 1), 0.1), 64, shuffle=True, num_workers=1, persistent_workers=True)
    valid = DataLoader(Reviews(write_reviews(512, 2)), 128)
    model = ConvText()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    stopper = Stopper(patience=4)
    step = 0
    begin = tick = time.time()
    wait = 0.0
    try:
        for epoch in range(max_epochs):
            for x, y in train:
                wait += time.time() - tick
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                step += 1
                if step % check_every == 0:
                    value, acc = evaluate(model, valid)
                    print(f"epoch {epoch} step {step} val {value:.4f} acc {acc:.3f}", flush=True)
                    stopper.update(value, model)
                tick = time.time()
    except Patience:
        print("no improvement, stopping in the middle of epoch", epoch)
    model.load_state_dict(stopper.state)
    print(f"best {stopper.best:.4f} after {step} steps, {time.time() - begin:.1f}s (data {wait:.2f}s)")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(3)
    fit()
