# cause: view-of-large-storage
# also: shm-exhausted
# limits: shm=128M
"""Character level language model; the corpus is one long tensor, the dataset already yields whole batches."""
import argparse
import math
import string

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = string.ascii_lowercase + " .,\n"


def corpus(length: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    steps = torch.randint(0, 3, (length,), generator=g)
    return torch.cumsum(steps, 0) % len(ALPHABET)


class Blocks(Dataset):
    """Row-major lanes; item k is the k-th column block of every lane."""

    def __init__(self, ids: torch.Tensor, lanes: int, span: int):
        per = len(ids) // lanes
        self._lanes = ids[: per * lanes].view(lanes, per)
        self.span = span

    def __len__(self):
        return (self._lanes.size(1) - 1) // self.span

    @property
    def lanes(self):
        return self._lanes

    def __getitem__(self, k):
        a = k * self.span
        b = a + self.span
        return self.lanes[:, a:b], self.lanes[:, a + 1:b + 1]


class CharLM(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.emb = nn.Embedding(len(ALPHABET), width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, len(ALPHABET))

    def forward(self, ids, state=None):
        h, state = self.rnn(self.emb(ids), state)
        return self.out(h), state.detach()


def train(args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Blocks(corpus(args.chars), args.lanes, args.span)
    loader = DataLoader(data, batch_size=None, num_workers=args.workers)
    model = CharLM()
    opt = torch.optim.AdamW(model.parameters(), 3e-3)
    state = None
    for step, (x, y) in enumerate(loader):
        logits, state = model(x, state)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 0:
            print(f"{step:5d} bits/char {loss.item() / math.log(2):.3f}", flush=True)
        if step == args.steps:
            break


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--chars", type=int, default=20_000_000)
    ap.add_argument("--lanes", type=int, default=16)
    ap.add_argument("--span", type=int, default=32)
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--workers", type=int, default=2)
    train(ap.parse_args())
