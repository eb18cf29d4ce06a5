"""Masked-token pretraining on audit trail lines, with a masking ratio that grows over the epochs."""
import multiprocessing
import random
from dataclasses import dataclass, field
from typing import List

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class PretrainConfig:
    lines: int = 3000
    max_len: int = 40
    dim: int = 64
    layers: int = 1
    batch_size: int = 48
    num_workers: int = 2
    mask_schedule: List[float] = field(default_factory=lambda: [0.05, 0.15, 0.30, 0.45, 0.60])
    lr: float = 5e-4


class Vocabulary:
    PAD, MASK, UNK = 0, 1, 2

    def __init__(self, lines):
        words = sorted({w for line in lines for w in line.split()})
        self.ids = {w: i + 3 for i, w in enumerate(words)}

    def __len__(self):
        return len(self.ids) + 3

    def encode(self, line, max_len):
        ids = [self.ids.get(w, self.UNK) for w in line.split()][:max_len]
        return ids + [self.PAD] * (max_len - len(ids))


def synth_trail(n):
    rnd = random.Random(9)
    services = [f"svc-{k}" for k in range(20)]
    verbs = "started stopped accepted rejected retried flushed opened closed".split()
    nouns = "connection session cursor worker request lease partition segment".split()
    out = []
    for _ in range(n):
        line = [rnd.choice(["INFO", "WARN", "ERROR"]), rnd.choice(services)]
        for _ in range(rnd.randint(4, 10)):
            line += [rnd.choice(verbs), rnd.choice(nouns), f"id={rnd.randint(0, 60)}"]
        out.append(" ".join(line))
    return out


class MaskedTrail(Dataset):
    def __init__(self, lines, vocab, max_len, mask_ratio):
        self.lines, self.vocab, self.max_len = lines, vocab, max_len
        self._ratio = multiprocessing.Value("d", mask_ratio)

    @property
    def mask_ratio(self):
        return self._ratio.value

    def set_mask_ratio(self, ratio):
        self._ratio.value = ratio

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        target = torch.tensor(self.vocab.encode(self.lines[i], self.max_len))
        real = target != Vocabulary.PAD
        hide = (torch.rand(self.max_len) < self.mask_ratio) & real
        return torch.where(hide, Vocabulary.MASK, target), torch.where(hide, target, -100)


class TrailEncoder(nn.Module):
    def __init__(self, vocab_size, cfg):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, cfg.dim, padding_idx=0)
        self.pos = nn.Parameter(torch.zeros(cfg.max_len, cfg.dim))
        layer = nn.TransformerEncoderLayer(cfg.dim, 4, 4 * cfg.dim, batch_first=True)
        self.body = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.out = nn.Linear(cfg.dim, vocab_size)

    def forward(self, ids):
        return self.out(self.body(self.tok(ids) + self.pos))


class MaskCurriculum:
    """Callback: raises the masking ratio at the start of an epoch."""

    def __init__(self, dataset, schedule):
        self.dataset, self.schedule = dataset, schedule

    def on_epoch_start(self, epoch):
        self.dataset.set_mask_ratio(self.schedule[min(epoch, len(self.schedule) - 1)])


class Pretrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        lines = synth_trail(cfg.lines)
        vocab = Vocabulary(lines)
        self.data = MaskedTrail(lines, vocab, cfg.max_len, cfg.mask_schedule[0])
        self.loader = DataLoader(self.data, batch_size=cfg.batch_size, shuffle=True, num_workers=cfg.num_workers,
                                 persistent_workers=True, drop_last=True)
        self.model = TrailEncoder(len(vocab), cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.callbacks = [MaskCurriculum(self.data, cfg.mask_schedule)]

    def step(self, ids, labels):
        logits = self.model(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.item()

    def fit(self):
        for epoch in range(len(self.cfg.mask_schedule)):
            for cb in self.callbacks:
                cb.on_epoch_start(epoch)
            total = 0.0
            for n, (ids, labels) in enumerate(self.loader, 1):
                total += self.step(ids, labels)
            print(f"epoch {epoch} ratio {self.data.mask_ratio:.2f} mlm loss {total / n:.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(21)
    Pretrainer(PretrainConfig()).fit()
