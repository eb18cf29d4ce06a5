# cause: result-not-picklable
"""Weekly demand forecast per store and article. Windows are scaled one by one; errors are reported in pieces sold."""
import json
import math
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

CFG = {"stores": 14, "weeks": 160, "context": 52, "horizon": 8, "data": {"batch_size": 16, "num_workers": 2}, "scaler": "log", "epochs": 2, "lr": 1e-3}


def make_sales(root: Path, cfg):
    rng = np.random.default_rng(41)
    t = np.arange(cfg["weeks"])
    for s in range(cfg["stores"]):
        base = 40 + 160 * rng.random()
        sales = rng.poisson(base * (1 + 0.4 * np.sin(2 * math.pi * t / 52 + s)) * (1 + 0.003 * t))
        (root / f"store{s:02d}.jsonl").write_text("".join(json.dumps({"week": int(w), "sold": int(v)}) + "\n" for w, v in zip(t, sales)))


class StandardScaler:
    def fit(self, x):
        mean, std = x.mean(), x.std() + 1e-6
        return (x - mean) / std, lambda y: y * std + mean


class LogScaler:
    def fit(self, x):
        shift = np.log1p(x).mean()
        return np.log1p(x) - shift, lambda y: torch.expm1(y + shift)


SCALERS = {"standard": StandardScaler, "log": LogScaler}


class Windows(Dataset):
    def __init__(self, root: Path, cfg):
        self.files = sorted(root.glob("*.jsonl"))
        self.context, self.horizon = cfg["context"], cfg["horizon"]
        self.per_file = cfg["weeks"] - self.context - self.horizon + 1
        self.scaler = SCALERS[cfg["scaler"]]()

    def __len__(self):
        return len(self.files) * self.per_file

    def read(self, path):
        time.sleep(0.002)
        with path.open() as f:
            return np.array([json.loads(line)["sold"] for line in f], np.float32)

    def __getitem__(self, i):
        f, start = divmod(i, self.per_file)
        series = self.read(self.files[f])[start:start + self.context + self.horizon]
        scaled, back = self.scaler.fit(series)
        x, y = np.split(scaled, [self.context])
        return {"x": x, "y": y, "sold": series[self.context:]}, back


def merge(samples, keep):
    fields, backs = zip(*samples)
    batch = default_collate([{k: f[k] for k in keep} for f in fields])
    batch["back"] = list(backs)
    return batch


class Forecaster(nn.Module):
    def __init__(self, horizon, hidden=48):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, horizon)

    def forward(self, x):
        _, h = self.rnn(x.unsqueeze(-1))
        return self.out(h[-1])


class Pieces:
    """Mean absolute error in pieces."""

    def __init__(self):
        self.sum, self.n = 0.0, 0

    def update(self, pred, batch):
        for p, back, sold in zip(pred, batch["back"], batch["sold"]):
            self.sum += (back(p) - sold).abs().mean().item()
            self.n += 1

    def value(self):
        return self.sum / max(1, self.n)


def main():
    torch.manual_seed(13)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        make_sales(Path(tmp), CFG)
        data = Windows(Path(tmp), CFG)
        loader = DataLoader(data, shuffle=True, collate_fn=partial(merge, keep=("x", "y", "sold")), persistent_workers=True, **CFG["data"])
        model = Forecaster(CFG["horizon"])
        opt = torch.optim.Adam(model.parameters(), CFG["lr"])
        for epoch in range(CFG["epochs"]):
            error, losses = Pieces(), []
            for batch in loader:
                pred = model(batch["x"])
                loss = nn.functional.smooth_l1_loss(pred, batch["y"])
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                losses.append(loss.item())
                error.update(pred.detach(), batch)
            print(f"epoch {epoch} loss {np.mean(losses):.4f} error {error.value():.1f} pieces", flush=True)


if __name__ == "__main__":
    main()
