# cause: workers-not-worth-it
"""Customer churn from a feature table: embeddings for categories, linear head, minibatch SGD."""
import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class ChurnTable(Dataset):
    CARDINALITIES = (12, 40, 7)

    def __init__(self, rows, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.numeric = torch.randn(rows, 14, generator=g)
        self.cats = torch.stack([torch.randint(c, (rows,), generator=g) for c in self.CARDINALITIES], 1)
        logit = self.numeric[:, 0] - 0.5 * self.numeric[:, 3] + (self.cats[:, 2] == 3).float()
        self.churned = (logit + torch.randn(rows, generator=g) > 0.8).float()

    def __len__(self):
        return len(self.churned)

    def __getitem__(self, i):
        return {"numeric": self.numeric[i], "cats": self.cats[i], "y": self.churned[i]}


class ChurnModel(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, dim) for c in ChurnTable.CARDINALITIES)
        self.head = nn.Linear(14 + dim * len(self.tables), 1)

    def forward(self, numeric, cats):
        parts = [numeric] + [emb(cats[:, k]) for k, emb in enumerate(self.tables)]
        return self.head(torch.cat(parts, 1)).squeeze(1)


def get_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rows", type=int, default=36_000)
    p.add_argument("--batch-size", type=int, default=12)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=0.02)
    return p.parse_args()


@torch.no_grad()
def auc(model, loader):
    scores, ys = [], []
    for b in loader:
        scores.append(model(b["numeric"], b["cats"]))
        ys.append(b["y"])
    s, y = torch.cat(scores), torch.cat(ys)
    rank = s.argsort().argsort().float() + 1
    pos = y.sum()
    return ((rank[y > 0.5].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos))).item()


def main():
    args = get_args()
    torch.set_num_threads(1)
    table = ChurnTable(args.rows)
    n_val = args.rows // 12
    train_set, val_set = random_split(table, [args.rows - n_val, n_val])
    train = DataLoader(train_set, args.batch_size, shuffle=True, num_workers=args.workers, persistent_workers=True)
    val = DataLoader(val_set, 1000)
    model = ChurnModel()
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    crit = nn.BCEWithLogitsLoss()
    for epoch in range(args.epochs):
        start = time.time()
        for b in train:
            opt.zero_grad()
            loss = crit(model(b["numeric"], b["cats"]), b["y"])
            loss.backward()
            opt.step()
        print(f"epoch {epoch}: {time.time() - start:.1f}s  val auc {auc(model, val):.4f}", flush=True)


if __name__ == "__main__":
    main()
