# cause: bad-sample
"""Readmission risk from discharge notes and vitals."""
import json
import re
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Optional

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

VOCAB = 2000
MAX_TOKENS = 96


@dataclass
class Vitals:
    pulse: float
    oxygen: float
    glucose: Optional[float]


@dataclass
class Stay:
    age: float
    days: int
    vitals: Vitals
    note: str
    readmitted: int
    tags: list = field(default_factory=list)


def number(text) -> Optional[float]:
    m = re.search(r"-?\d+(\.\d+)?", text)
    return float(m.group()) if m else None


def export(path: Path, n: int) -> None:
    rng = np.random.default_rng(30)
    words = [f"w{i}" for i in range(600)]
    with path.open("w") as f:
        for k in range(n):
            risk = rng.random()
            glucose = f"{80 + 90 * risk:.1f} mg/dL" if k != 418 else "haemolysed"
            row = {"age": f"{40 + 50 * risk:.0f}y", "days": int(1 + 9 * risk), "pulse": f"{60 + 40 * risk:.0f}", "spo2": f"{99 - 8 * risk:.0f}%",
                   "glucose": glucose, "note": " ".join(rng.choice(words, 300)), "y": int(risk > 0.5), "tags": ["ward-b"]}
            f.write(json.dumps(row) + "\n")


class Stays(Dataset):
    """Rows stay on disk; only the byte offsets are kept."""

    def __init__(self, path: Path):
        self.path = path
        offsets, at = [], 0
        with path.open("rb") as f:
            for line in f:
                offsets.append(at)
                at += len(line)
        self.offsets = np.array(offsets)

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, i) -> Stay:
        with self.path.open("rb") as f:
            f.seek(self.offsets[i])
            row = json.loads(f.readline())
        time.sleep(0.002)
        return Stay(age=number(row["age"]), days=row["days"], note=row["note"], readmitted=row["y"], tags=row["tags"],
                    vitals=Vitals(number(row["pulse"]), number(row["spo2"]), number(row["glucose"])))


class Encoded(Dataset):
    """Wraps stays; gives what the network eats."""

    def __init__(self, stays):
        self.stays = stays

    def __len__(self):
        return len(self.stays)

    @staticmethod
    def tokens(text):
        ids = [hash_word(w) for w in re.findall(r"\w+", text.lower())][:MAX_TOKENS]
        return torch.tensor(ids + [0] * (MAX_TOKENS - len(ids)))

    def __getitem__(self, i):
        item = asdict(self.stays[i])
        item.pop("tags")
        item["note"] = self.tokens(item["note"])
        return item


def hash_word(w):
    h = 2166136261
    for ch in w.encode() * 4:
        h = ((h ^ ch) * 16777619) & 0xFFFFFFFF
    return 1 + h % (VOCAB - 1)


class Risk(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(VOCAB, 48, padding_idx=0)
        self.head = nn.Sequential(nn.Linear(48 + 5, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, b):
        v = b["vitals"]
        tab = torch.stack([b["age"] / 90, b["days"] / 10, v["pulse"] / 100, v["oxygen"] / 100, v["glucose"] / 170], 1).float()
        return self.head(torch.cat([self.emb(b["note"]), tab], 1)).squeeze(1)


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "stays.jsonl"
        export(path, 700)
        stays = Stays(path)
        order = np.random.default_rng(2).permutation(len(stays)).tolist()
        train, test = Encoded(Subset(stays, order[:600])), Encoded(Subset(stays, order[600:]))
        loader = DataLoader(train, batch_size=20, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True)
        model = Risk()
        opt = torch.optim.AdamW(model.parameters(), 2e-3)
        for epoch in range(3):
            losses = []
            for b in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(b), b["readmitted"].float())
                loss.backward()
                opt.step()
                opt.zero_grad()
                losses.append(loss.item())
            with torch.no_grad():
                ok = [((model(b) > 0) == b["readmitted"].bool()).float().mean() for b in DataLoader(test, 25)]
            print(f"epoch {epoch}: loss {np.mean(losses):.4f} test accuracy {torch.stack(ok).mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
