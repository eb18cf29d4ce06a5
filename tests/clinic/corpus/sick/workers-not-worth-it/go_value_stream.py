# cause: workers-not-worth-it
"""Value head for 9x9 Go from self-play positions kept in RAM; minibatches are drawn as a stream."""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class SelfPlayPool:
    """Packed games: boards as int8 planes, results and move numbers alongside."""

    def __init__(self, positions, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.boards = torch.randint(-1, 2, (positions, 9, 9), generator=g, dtype=torch.int8)
        self.move = torch.randint(1, 80, (positions,), generator=g)
        self.komi = torch.full((positions,), 7.0)
        self.result = torch.tanh(self.boards.float().sum((1, 2)) / 8)
        self.policy = torch.randint(0, 81, (positions,), generator=g)

    def take(self, idx):
        return {"board": self.boards[idx], "move": self.move[idx], "komi": self.komi[idx],
                "policy": self.policy[idx], "result": self.result[idx]}


class MinibatchStream(IterableDataset):
    def __init__(self, pool, batch, per_epoch):
        super().__init__()
        self.pool, self.batch, self.per_epoch = pool, batch, per_epoch

    def __iter__(self):
        info = get_worker_info()
        share = self.per_epoch if info is None else math.ceil((self.per_epoch - info.id) / info.num_workers)
        g = torch.Generator().manual_seed(torch.initial_seed() % 2**40)
        for _ in range(share):
            yield self.pool.take(torch.randint(0, len(self.pool.move), (self.batch,), generator=g))


class ValueNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(83, 64), nn.ReLU())
        self.value, self.policy = nn.Linear(64, 1), nn.Linear(64, 81)

    def forward(self, b):
        extra = torch.stack([b["move"] / 80.0, b["komi"] / 10.0], 1)
        h = self.trunk(torch.cat([b["board"].flatten(1).float(), extra], 1))
        return torch.tanh(self.value(h)).squeeze(1), self.policy(h)


class Session:
    checkpoint_every = 1000

    def __init__(self, pool, workers):
        self.loader = DataLoader(MinibatchStream(pool, 32, 2000), batch_size=None, num_workers=workers,
                                 persistent_workers=workers > 0, prefetch_factor=4 if workers else None)
        self.net = ValueNet()
        self.opt = torch.optim.SGD(self.net.parameters(), 0.05, momentum=0.9)
        self.seen = 0

    def learn(self, batch):
        v, p = self.net(batch)
        loss = (v - batch["result"]).square().mean() + 0.01 * nn.functional.cross_entropy(p, batch["policy"])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.seen += 1
        return loss.item()

    def run(self, rounds):
        for r in range(rounds):
            avg = 0.0
            for batch in self.loader:
                avg = 0.99 * avg + 0.01 * self.learn(batch)
                if self.seen % self.checkpoint_every == 0:
                    print(f"round {r} step {self.seen} loss {avg:.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    Session(SelfPlayPool(60_000), workers=3).run(rounds=2)
