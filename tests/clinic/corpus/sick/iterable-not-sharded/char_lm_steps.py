# cause: iterable-not-sharded, iterator-rebuilt-each-step
"""Character language model, step-based training with periodic evaluation (nanoGPT-style)."""
import math
import random
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset


@dataclass
class LMConfig:
    block_size: int = 48
    n_embd: int = 48
    batch_size: int = 16
    max_steps: int = 300
    eval_interval: int = 25
    lr: float = 3e-3
    num_workers: int = 2


def synth_corpus(n_sentences=4000, seed=1):
    rng = random.Random(seed)
    subj = ["the sailor", "a child", "our captain", "the old dog", "my sister"]
    verb = ["saw", "painted", "followed", "lost", "sang to"]
    obj = ["the moon", "a red boat", "some bread", "the harbour", "nobody"]
    return [f"{rng.choice(subj)} {rng.choice(verb)} {rng.choice(obj)}.\n" for _ in range(n_sentences)]


class CharVocab:
    def __init__(self, text):
        self.chars = sorted(set(text))
        self.stoi = {c: i for i, c in enumerate(self.chars)}

    def __len__(self):
        return len(self.chars)

    def encode(self, s):
        return torch.tensor([self.stoi[c] for c in s])


class BlockDataset(Dataset):
    def __init__(self, ids, block_size):
        self.ids, self.block = ids, block_size

    def __len__(self):
        return len(self.ids) - self.block - 1

    def __getitem__(self, i):
        chunk = self.ids[i:i + self.block + 1]
        return chunk[:-1].clone(), chunk[1:].clone()


class SentenceStream(IterableDataset):
    """Held-out sentences one after another, cut into blocks."""

    def __init__(self, sentences, vocab, block_size):
        self.sentences, self.vocab, self.block = sentences, vocab, block_size

    def __iter__(self):
        buf = ""
        for s in self.sentences:
            buf += s
            while len(buf) > self.block:
                ids = self.vocab.encode(buf[: self.block + 1])
                buf = buf[self.block:]
                yield ids[:-1], ids[1:]


class CharGRU(nn.Module):
    def __init__(self, n_vocab, n_embd):
        super().__init__()
        self.wte = nn.Embedding(n_vocab, n_embd)
        self.rnn = nn.GRU(n_embd, n_embd, batch_first=True)
        self.head = nn.Linear(n_embd, n_vocab)

    def forward(self, x, y):
        h, _ = self.rnn(self.wte(x))
        return F.cross_entropy(self.head(h).flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate_loss(model, loader):
    model.eval()
    nll, chars = 0.0, 0
    for x, y in loader:
        nll += model(x, y).item() * y.numel()
        chars += y.numel()
    model.train()
    return nll / chars, chars


cfg = LMConfig()
torch.manual_seed(1337)
torch.set_num_threads(1)
sentences = synth_corpus()
vocab = CharVocab("".join(sentences))
train_ids = vocab.encode("".join(sentences[:3600]))

train_loader = DataLoader(BlockDataset(train_ids, cfg.block_size), batch_size=cfg.batch_size,
                          shuffle=True, num_workers=cfg.num_workers)
val_loader = DataLoader(SentenceStream(sentences[3600:], vocab, cfg.block_size),
                        batch_size=cfg.batch_size, num_workers=cfg.num_workers, persistent_workers=True)

model = CharGRU(len(vocab), cfg.n_embd)
optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)

t0 = time.time()
for step in range(cfg.max_steps):
    for group in optimizer.param_groups:
        group["lr"] = cfg.lr * min(1.0, (step + 1) / 20) * (0.55 + 0.45 * math.cos(math.pi * step / cfg.max_steps))
    xb, yb = next(iter(train_loader))
    loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if (step + 1) % cfg.eval_interval == 0:
        val, chars = estimate_loss(model, val_loader)
        print(f"step {step + 1}: train {loss.item():.3f} val {val:.3f} over {chars} chars "
              f"({(time.time() - t0) / (step + 1) * 1e3:.0f} ms/step)", flush=True)
