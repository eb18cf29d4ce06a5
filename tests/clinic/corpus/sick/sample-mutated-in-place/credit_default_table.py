# cause: sample-mutated-in-place
"""Probability of default from a table of loan applications."""
import dataclasses
import pathlib
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

NUMERIC = ["income", "debt", "age", "tenure", "utilisation", "inquiries", "balance", "limit"]
CATEGORICAL = {"region": 12, "product": 5, "channel": 4}


@dataclasses.dataclass
class CreditConfig:
    rows: int = 4800
    batch_size: int = 100
    width: int = 768
    epochs: int = 6
    workers: int = 2
    lr: float = 2e-4
    checkpoint_dir: str = dataclasses.field(default_factory=tempfile.mkdtemp)


def synth_applications(rows, seed=0):
    rng = np.random.default_rng(seed)
    centre = np.array([42e3, 9e3, 41, 6, 0.4, 2, 3e3, 8e3])
    numeric = np.abs(rng.normal(centre, centre * 0.4, size=(rows, len(NUMERIC))))
    cats = np.stack([rng.integers(0, k, rows) for k in CATEGORICAL.values()], axis=1)
    risk = 2.2 * numeric[:, 1] / numeric[:, 0] + 1.5 * numeric[:, 4] + 0.1 * (cats[:, 1] == 2) - 1.1
    label = (risk + rng.normal(0, 0.2, rows) > 0).astype(np.float32)
    return torch.tensor(numeric, dtype=torch.float32), torch.tensor(cats), torch.tensor(label)


class Standardizer:
    """Zero mean and unit variance per column."""

    def fit(self, table):
        self.mean, self.std = table.mean(0), table.std(0)
        return self

    def __call__(self, row):
        row -= self.mean
        row /= self.std
        return row


class Clipper:
    def __init__(self, bound):
        self.bound = bound

    def __call__(self, row):
        return row.clamp(-self.bound, self.bound)


class Pipeline:
    def __init__(self, stages):
        self.stages = stages

    def __call__(self, row):
        for stage in self.stages:
            row = stage(row)
        return row


class ApplicationTable(Dataset):
    def __init__(self, numeric, cats, label, transform):
        self.numeric, self.cats, self.label = numeric, cats, label
        self.transform = transform

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return {"numeric": self.transform(self.numeric[i]), "cats": self.cats[i], "label": self.label[i]}


class DefaultModel(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(k, 8) for k in CATEGORICAL.values())
        self.mlp = nn.Sequential(
            nn.Linear(len(NUMERIC) + 8 * len(CATEGORICAL), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, numeric, cats):
        parts = [emb(cats[:, k]) for k, emb in enumerate(self.embeddings)]
        return self.mlp(torch.cat([numeric, *parts], dim=1)).squeeze(1)


class CreditTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        numeric, cats, label = synth_applications(cfg.rows)
        table = ApplicationTable(numeric, cats, label, Pipeline([Standardizer().fit(numeric), Clipper(5.0)]))
        n_val = cfg.rows // 6
        train, val = random_split(table, [cfg.rows - n_val, n_val], generator=torch.Generator().manual_seed(1))
        common = dict(batch_size=cfg.batch_size, num_workers=cfg.workers, persistent_workers=True)
        self.train_loader = DataLoader(train, shuffle=True, **common)
        self.val_loader = DataLoader(val, **common)
        self.model = DefaultModel(cfg.width)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.best = 0.0

    def fit(self):
        for epoch in range(self.cfg.epochs):
            loss = self._train()
            acc = self._accuracy()
            if acc > self.best:
                self.best = acc
                torch.save(self.model.state_dict(), pathlib.Path(self.cfg.checkpoint_dir) / "best.pt")
            print(f"epoch {epoch}: loss {loss:.4f} val accuracy {acc:.4f} (best {self.best:.4f})", flush=True)

    def _train(self):
        self.model.train()
        losses = []
        for batch in self.train_loader:
            logits = self.model(batch["numeric"], batch["cats"])
            loss = nn.functional.binary_cross_entropy_with_logits(logits, batch["label"])
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    @torch.no_grad()
    def _accuracy(self):
        self.model.eval()
        right = total = 0
        for batch in self.val_loader:
            guess = self.model(batch["numeric"], batch["cats"]) > 0
            right += (guess == (batch["label"] > 0.5)).sum().item()
            total += len(guess)
        return right / total


if __name__ == "__main__":
    torch.manual_seed(7)
    CreditTrainer(CreditConfig()).fit()
