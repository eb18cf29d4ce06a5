# cause: slow-worker-start
# also: workers-restarted
"""Triage of clinical notes into urgency levels with hashed n-grams and an embedding bag."""
import multiprocessing
import random
import time
import zlib
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BUCKETS = 1 << 14
WORDS = ("patient denies chest pain acute onset dyspnea stable fever cough chronic mild severe left right arm weakness "
         "sudden headache nausea discharge follow review medication dose allergic history reports improving worsening").split()


@dataclass
class Plan:
    notes: int = 2400
    held_out: int = 600
    length: int = 180
    batch: int = 48
    epochs: int = 3
    workers: int = 2
    lr: float = 0.02
    loader_options: dict = field(default_factory=dict)


class NoteCorpus(Dataset):
    """Notes are kept as byte codes of words; text features are made on the fly."""

    def __init__(self, size, length, seed):
        generator = torch.Generator().manual_seed(seed)
        codes = torch.randint(0, len(WORDS), (size, length), generator=generator)
        self.levels = torch.randint(0, 3, (size,), generator=generator)
        signal = torch.rand(size, length, generator=generator) < 0.12
        codes[signal] = (self.levels[:, None].expand(size, length)[signal] * 3) % len(WORDS)
        self.codes = codes.to(torch.uint8)

    def __len__(self):
        return len(self.levels)

    def ngrams(self, words):
        for n in (1, 2, 3):
            for i in range(len(words) - n + 1):
                yield zlib.crc32(" ".join(words[i:i + n]).encode()) % BUCKETS

    def __getitem__(self, index):
        words = [WORDS[c] for c in self.codes[index].tolist()]
        if random.random() < 0.5:
            words = [w for w in words if random.random() > 0.05]
        return list(self.ngrams(words)), self.levels[index].item()


def bag_collate(samples):
    offsets, flat = [], []
    for tokens, _ in samples:
        offsets.append(len(flat))
        flat.extend(tokens)
    return torch.tensor(flat), torch.tensor(offsets), torch.tensor([level for _, level in samples])


class TriageNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.bag = nn.EmbeddingBag(BUCKETS, width, mode="mean")
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(width, 3))

    def forward(self, tokens, offsets):
        return self.head(self.bag(tokens, offsets))


def platform_options():
    """One setting that behaves the same on the laptops (macOS, Windows) and on the cluster."""
    return {"multiprocessing_context": multiprocessing.get_context("spawn")}


def make_loader(corpus, plan, training):
    options = dict(plan.loader_options)
    if training:
        options["persistent_workers"] = True
    return DataLoader(corpus, batch_size=plan.batch, shuffle=training, num_workers=plan.workers, collate_fn=bag_collate, **options)


class Triage:
    def __init__(self, plan):
        self.plan = plan
        self.train_loader = make_loader(NoteCorpus(plan.notes, plan.length, 1), plan, training=True)
        self.model = TriageNet()
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=plan.lr)

    @torch.no_grad()
    def evaluate(self, corpus):
        self.model.eval()
        confusion = torch.zeros(3, 3, dtype=torch.long)
        for tokens, offsets, levels in make_loader(corpus, self.plan, training=False):
            guess = self.model(tokens, offsets).argmax(1)
            confusion.index_put_((levels, guess), torch.ones_like(guess), accumulate=True)
        self.model.train()
        return confusion.diag().sum().item() / confusion.sum().item()

    def fit(self):
        held_out = NoteCorpus(self.plan.held_out, self.plan.length, 2)
        for epoch in range(self.plan.epochs):
            start = time.perf_counter()
            for tokens, offsets, levels in self.train_loader:
                loss = nn.functional.cross_entropy(self.model(tokens, offsets), levels)
                self.optimiser.zero_grad()
                loss.backward()
                self.optimiser.step()
            score = self.evaluate(held_out)
            print(f"epoch {epoch + 1}: loss {loss.item():.3f} accuracy {score:.3f} in {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    begin = time.perf_counter()
    Triage(Plan(loader_options=platform_options())).fit()
    print(f"total {time.perf_counter() - begin:.1f} s")
