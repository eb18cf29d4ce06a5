# cause: copy-on-write-growth
"""Next-item prediction over shopping histories.

The transaction log is loaded once, grouped per customer and split into a train and a hold-out part.
"""
import argparse
import logging
import random
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

log = logging.getLogger("basket")


class Event:
    __slots__ = ("item", "price", "stamp", "channel")

    def __init__(self, item, price, stamp, channel):
        self.item = item
        self.price = price
        self.stamp = stamp
        self.channel = channel


class History:
    def __init__(self, customer):
        self.customer = customer
        self.events = []

    def add(self, event):
        self.events.append(event)

    def window(self, length, end):
        return self.events[max(0, end - length):end]


class TransactionLog:
    """All customers in the order in which they first appeared."""

    def __init__(self, customers, seed):
        rng = random.Random(seed)
        self.by_customer = {}
        clock = 1_600_000_000.0
        for c in range(customers):
            history = History("cust-%07d" % c)
            for _ in range(rng.randrange(150, 210)):
                clock += rng.random()
                history.add(Event(1000 + rng.randrange(400_000), 0.5 + 40 * rng.random(), clock, "shop"))
            self.by_customer[history.customer] = history
        self.names = list(self.by_customer)

    def __getitem__(self, position):
        return self.by_customer[self.names[position]]

    def __len__(self):
        return len(self.names)


class Catalogue:
    def __init__(self, source, buckets):
        self.source = source
        self.buckets = buckets

    def bucket(self, item):
        return (item * 2654435761) % self.buckets


class NextBasket(Dataset):
    def __init__(self, catalogue, length, negatives):
        self.catalogue = catalogue
        self.length = length
        self.negatives = negatives

    def __len__(self):
        return len(self.catalogue.source)

    def __getitem__(self, i):
        source = self.catalogue.source
        events = source[i].window(self.length + 1, len(source[i].events))
        items = [self.catalogue.bucket(e.item) for e in events]
        gaps = np.diff([e.stamp for e in events]).astype(np.float32)
        spend = np.array([e.price for e in events[:-1]], dtype=np.float32)
        others = torch.randint(len(source), (self.negatives,)).tolist()
        wrong = [self.catalogue.bucket(source[o].events[k % 150].item) for k, o in enumerate(others)]
        return (torch.tensor(items[:-1]), torch.from_numpy(np.stack([np.log1p(spend), np.log1p(gaps)], 1)),
                torch.tensor(items[-1]), torch.tensor(wrong))


class Recommender(nn.Module):
    def __init__(self, buckets, width=32):
        super().__init__()
        self.items = nn.Embedding(buckets, width)
        self.extra = nn.Linear(2, width)
        self.rnn = nn.GRU(width, width, batch_first=True)

    def forward(self, items, extra, target, wrong):
        state = self.rnn(self.items(items[:, -20:]) + self.extra(extra[:, -20:]))[1][-1]
        candidates = torch.cat([target[:, None], wrong], 1)
        return torch.einsum("bd,bkd->bk", state, self.items(candidates))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--customers", type=int, default=8_000)
    p.add_argument("--window", type=int, default=100)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--max-steps", type=int, default=100)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    torch.manual_seed(4)
    torch.set_num_threads(1)

    full = NextBasket(Catalogue(TransactionLog(args.customers, seed=4), 5000), args.window, negatives=60)
    order = torch.randperm(len(full)).tolist()
    train = Subset(full, order[500:])
    loader = DataLoader(train, args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
    model = Recommender(5000)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    started = time.time()
    for step, (items, extra, target, wrong) in enumerate(loader):
        scores = model(items, extra, target, wrong[:, :50])
        loss = nn.functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.02)  # waiting for the parameter server
        if step % 30 == 0:
            log.info("step %d loss %.3f %.1fs", step, loss.item(), time.time() - started)
        if step >= args.max_steps:
            break
    log.info("finished after %.1fs", time.time() - started)


if __name__ == "__main__":
    main()
