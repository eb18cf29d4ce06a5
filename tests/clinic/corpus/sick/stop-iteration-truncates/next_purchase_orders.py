# cause: stop-iteration-truncates
"""Days until a customer's next order, from the order history up to a chosen date."""
import datetime as dt
import random
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class OrderConfig:
    customers: int = 500
    history: int = 12
    batch_size: int = 50
    width: int = 512
    epochs: int = 5
    workers: int = 2
    lr: float = 1e-3


@dataclass(frozen=True)
class Order:
    day: dt.date
    amount: float
    items: int
    cancelled: bool = False


class OrderBook:
    """All orders by customer, oldest first."""

    def __init__(self, customers, seed=0):
        rnd = random.Random(seed)
        self.orders = {}
        for c in range(customers):
            day = dt.date(2022, 1, 1) + dt.timedelta(days=rnd.randint(0, 60))
            book = []
            for _ in range(rnd.randint(14, 22)):
                book.append(Order(day, round(rnd.lognormvariate(3, 0.6), 2), rnd.randint(1, 9), rnd.random() < 0.12))
                day += dt.timedelta(days=rnd.randint(3, 40))
            book[-1] = Order(book[-1].day, book[-1].amount, book[-1].items, cancelled=rnd.random() < 0.006)
            self.orders[c] = book

    def snapshots(self):
        for c, book in self.orders.items():
            for k in range(3, len(book) - 1):
                yield c, k


class NextOrder(Dataset):
    def __init__(self, book, cfg):
        self.book, self.cfg = book, cfg
        self.keys = list(book.snapshots())

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        customer, k = self.keys[i]
        orders = self.book.orders[customer]
        now = orders[k].day
        following = next(o for o in orders[k + 1:] if not o.cancelled)
        past = orders[max(0, k + 1 - self.cfg.history):k + 1]
        rows = [[(now - o.day).days / 30, o.amount / 20, o.items / 5, float(o.cancelled)] for o in past]
        rows = [[0.0] * 4] * (self.cfg.history - len(rows)) + rows
        return torch.tensor(rows), torch.tensor((following.day - now).days / 30)


class GapModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(cfg.history * 4, w), nn.SiLU(), nn.Linear(w, w), nn.SiLU(),
                                 nn.Linear(w, w), nn.SiLU(), nn.Linear(w, 1), nn.Softplus())

    def forward(self, x):
        return self.net(x).squeeze(1)


class Metrics:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, pred, truth):
        self.total += (pred - truth).abs().sum().item()
        self.count += len(truth)

    @property
    def mae_days(self):
        return 30 * self.total / max(1, self.count)


class GapTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        data = NextOrder(OrderBook(cfg.customers), cfg)
        order = torch.randperm(len(data)).tolist()
        cut = int(0.9 * len(order))
        self.train_loader = DataLoader(Subset(data, order[:cut]), cfg.batch_size, shuffle=True,
                                       num_workers=cfg.workers, persistent_workers=True)
        self.val_loader = DataLoader(Subset(data, order[cut:]), cfg.batch_size)
        self.model = GapModel(cfg)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.model.train()
            seen = Metrics()
            for x, y in self.train_loader:
                pred = self.model(x)
                loss = nn.functional.smooth_l1_loss(pred, y)
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                seen.add(pred.detach(), y)
            print(f"epoch {epoch}: train MAE {seen.mae_days:.2f} days, val MAE {self.evaluate():.2f} days", flush=True)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        m = Metrics()
        for x, y in self.val_loader:
            m.add(self.model(x), y)
        return m.mae_days


if __name__ == "__main__":
    torch.manual_seed(4)
    GapTrainer(OrderConfig()).fit()
