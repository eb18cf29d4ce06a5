# cause: exception-type-lost
# also: dataset-raises
"""Churn model on rows joined from an embedded feature store. Entities whose features are outdated are set aside."""
import json
import logging
import sqlite3
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("churn")
DAY = 86400


class FeatureStoreError(Exception):
    """Base of what the store may raise."""


class StaleFeatures(FeatureStoreError):
    def __init__(self, entity_id, age_days):
        super().__init__(f"features of entity {entity_id} are {age_days:.0f} days old")
        self.entity_id = entity_id
        self.age_days = age_days


@dataclass
class ChurnConfig:
    entities: int = 3000
    features: int = 24
    max_age_days: int = 30
    batch_size: int = 60
    width: int = 512
    workers: int = 2
    epochs: int = 4
    lr: float = 5e-4
    quarantine: set = field(default_factory=set)


def build_store(path, cfg):
    rng = np.random.default_rng(17)
    now = time.time()
    old = set(rng.choice(cfg.entities, 4, replace=False).tolist())
    db = sqlite3.connect(path)
    db.execute("create table features (entity integer primary key, updated real, payload text, churned integer)")
    rows = []
    for e in range(cfg.entities):
        x = rng.normal(size=cfg.features).round(4)
        age = rng.uniform(60, 90) if e in old else rng.uniform(0, 20)
        rows.append((e, now - age * DAY, json.dumps(x.tolist()), int(x[:4].sum() + rng.normal() * 0.5 > 0)))
    db.executemany("insert into features values (?, ?, ?, ?)", rows)
    db.commit()
    db.close()


class FeatureStore:
    """Opens its database on first use, in the process that uses it."""

    def __init__(self, path, max_age_days):
        self.path, self.max_age_days, self._db = path, max_age_days, None

    def get(self, entity):
        if self._db is None:
            self._db = sqlite3.connect(self.path)
        updated, payload, churned = self._db.execute(
            "select updated, payload, churned from features where entity = ?", (entity,)).fetchone()
        age = (time.time() - updated) / DAY
        if age > self.max_age_days:
            raise StaleFeatures(entity, age)
        return json.loads(payload), churned


class ChurnRows(Dataset):
    def __init__(self, store, entities):
        self.store, self.entities = store, entities

    def __len__(self):
        return len(self.entities)

    def __getitem__(self, i):
        features, churned = self.store.get(self.entities[i])
        return torch.tensor(features), torch.tensor(float(churned))


class ChurnTrainer:
    def __init__(self, cfg, store_path):
        self.cfg, self.store_path = cfg, store_path
        w = cfg.width
        self.model = nn.Sequential(nn.Linear(cfg.features, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(),
                                   nn.Linear(w, w), nn.ReLU(), nn.Linear(w, 1))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)

    def loader(self):
        entities = [e for e in range(self.cfg.entities) if e not in self.cfg.quarantine]
        rows = ChurnRows(FeatureStore(self.store_path, self.cfg.max_age_days), entities)
        return DataLoader(rows, batch_size=self.cfg.batch_size, shuffle=True, num_workers=self.cfg.workers)

    def train_epoch(self):
        losses = []
        for x, y in self.loader():
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(x).squeeze(1), y)
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def fit(self):
        epoch = 0
        while epoch < self.cfg.epochs:
            try:
                loss = self.train_epoch()
            except StaleFeatures as err:
                log.warning("quarantined entity %d (%.0f days old), epoch %d again", err.entity_id, err.age_days, epoch)
                self.cfg.quarantine.add(err.entity_id)
                continue
            log.info("epoch %d loss %.4f, %d in quarantine", epoch, loss, len(self.cfg.quarantine))
            epoch += 1


def main():
    torch.manual_seed(2)
    cfg = ChurnConfig()
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "features.db"
        build_store(path, cfg)
        ChurnTrainer(cfg, path).fit()


if __name__ == "__main__":
    main()
