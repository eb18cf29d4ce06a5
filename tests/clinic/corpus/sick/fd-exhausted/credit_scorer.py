# cause: fd-exhausted
# limits: nofile=256
"""Default-probability model on monthly account statements, with a full-sample KS report after each epoch."""
import csv
import io
import itertools
import time
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

MONTHS, COLS = 24, 7


def statement(account):
    """The raw CSV export of one account as the core banking system delivers it."""
    rng = np.random.default_rng(account)
    risk = rng.beta(2, 5)
    rows = io.StringIO()
    w = csv.writer(rows)
    for m in range(MONTHS):
        limit = 1000 + 250 * (account % 9)
        bal = limit * np.clip(risk + rng.normal(0, 0.15), 0, 1)
        w.writerow([m, limit, f"{bal:.2f}", f"{bal * rng.random():.2f}", int(rng.random() < risk * 0.4),
                    f"{rng.gamma(2, 40):.2f}", rng.integers(0, 5)])
    return rows.getvalue(), int(rng.random() < risk)


class Accounts(Dataset):
    def __init__(self, ids):
        self.ids = ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, k):
        text, label = statement(int(self.ids[k]))
        rows = [[float(c) for c in r] for r in csv.reader(io.StringIO(text))]
        x = torch.tensor(rows)
        x[:, 2:4] /= x[:, 1:2]
        x[:, 1] /= 1000
        x[:, 5] /= 100
        return {"account": int(self.ids[k]), "x": x, "label": float(label), "exposure": x[-1, 2] * x[-1, 1]}


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(COLS, 24, batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        return self.head(self.gru(x)[0][:, -1]).squeeze(-1)


def training_step(model, batch):
    logit = model(batch["x"])
    loss = nn.functional.binary_cross_entropy_with_logits(logit, batch["label"].float())
    return SimpleNamespace(loss=loss, prob=logit.detach().sigmoid(), label=batch["label"],
                           account=batch["account"], exposure=batch["exposure"])


def ks_report(outputs):
    prob = torch.cat([o.prob for o in outputs])
    label = torch.cat([o.label for o in outputs])
    exposure = torch.cat([o.exposure for o in outputs])
    order = prob.argsort()
    bad = (label[order] == 1).double().cumsum(0)
    good = (label[order] == 0).double().cumsum(0)
    ks = (good / good[-1] - bad / bad[-1]).abs().max()
    return f"KS {ks:.3f} expected loss {(prob * exposure).sum():.1f}"


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ids = np.random.default_rng(0).permutation(5000)
    split = {"fit": DataLoader(Accounts(ids[:4400]), 32, shuffle=True, num_workers=2),
             "holdout": DataLoader(Accounts(ids[4400:]), 64, num_workers=2)}
    model = Scorer()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    for epoch, (part, loader) in itertools.product(range(2), split.items()):
        t0, outputs = time.perf_counter(), []
        model.train(part == "fit")
        for batch in loader:
            out = training_step(model, batch)
            if part == "fit":
                opt.zero_grad()
                out.loss.backward()
                opt.step()
            outputs.append(out)
        print(f"{epoch} {part:8s} {ks_report(outputs)} [{time.perf_counter() - t0:.1f}s]", flush=True)


if __name__ == "__main__":
    main()
