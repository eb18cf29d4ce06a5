# cause: workers-not-worth-it
"""Credit scoring with a small MLP."""
import argparse
import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_table(rows, cols, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, cols, generator=g)
    w = torch.randn(cols, generator=g)
    y = ((x @ w + 0.5 * torch.randn(rows, generator=g)) > 0).float()
    return x, y


class MLP(nn.Module):
    def __init__(self, cols, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(cols, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)


def evaluate(model, x, y):
    model.eval()
    with torch.inference_mode():
        acc = ((model(x) > 0) == (y > 0.5)).float().mean().item()
    model.train()
    return acc


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=24000)
    ap.add_argument("--cols", type=int, default=20)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--patience", type=int, default=3)
    ap.add_argument("--num-workers", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(1)
    x, y = make_table(args.rows, args.cols)
    cut = int(args.rows * 0.9)
    train = TensorDataset(x[:cut], y[:cut])
    loader = DataLoader(train, batch_size=args.batch_size, shuffle=True, num_workers=args.num_workers, persistent_workers=True)
    model = MLP(args.cols, 32)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    best, best_state, bad = 0.0, None, 0
    for epoch in range(args.epochs):
        t0 = time.time()
        for xb, yb in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        acc = evaluate(model, x[cut:], y[cut:])
        print(f"epoch {epoch}: accuracy {acc:.3f} ({time.time() - t0:.1f}s)", flush=True)
        if acc > best:
            best, best_state, bad = acc, copy.deepcopy(model.state_dict()), 0
        else:
            bad += 1
            if bad >= args.patience:
                break
    model.load_state_dict(best_state)
    print("best", best)


if __name__ == "__main__":
    main()
