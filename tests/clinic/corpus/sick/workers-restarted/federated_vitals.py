# cause: workers-restarted
# also: workers-not-worth-it
# arguments: --rounds 20
"""Federated averaging: four hospitals train a common model on their own vital-sign records."""
import argparse
import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Vitals(Dataset):
    def __init__(self, site, patients, steps=160):
        g = torch.Generator().manual_seed(site)
        self.risk = (torch.rand(patients, generator=g) < 0.3 + 0.1 * site).float()
        t = torch.linspace(0, 12, steps)
        beat = 1.2 + 0.5 * self.risk[:, None] + 0.1 * torch.randn(patients, 1, generator=g)
        self.series = torch.sin(t * beat * 3) + 0.3 * torch.randn(patients, steps, generator=g) + 0.2 * site

    def __len__(self):
        return len(self.risk)

    def __getitem__(self, i):
        x = self.series[i]
        x = torch.roll(x, int(torch.randint(0, 20, ())))
        gain = 1 + 0.1 * torch.randn(())
        spectrum = torch.fft.rfft((x - x.mean()) * gain).abs()[:48]
        trend = nn.functional.avg_pool1d(x[None, None], 8)[0, 0]
        return torch.cat([torch.log1p(spectrum), trend]), self.risk[i]


def make_model():
    return nn.Sequential(nn.Linear(68, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))


class Hospital:
    def __init__(self, site, patients, workers):
        self.name = f"site{site}"
        self.data = Vitals(site, patients)
        self.loader = DataLoader(self.data, batch_size=16, shuffle=True, drop_last=True, num_workers=workers)
        self.seconds = 0.0

    def train(self, weights, lr):
        began = time.perf_counter()
        model = make_model()
        model.load_state_dict(weights)
        opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
        for x, y in self.loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        self.seconds += time.perf_counter() - began
        return model.state_dict(), len(self.data), loss.item()


class Server:
    def __init__(self):
        self.model = make_model()

    def broadcast(self):
        return copy.deepcopy(self.model.state_dict())

    def aggregate(self, updates):
        total = sum(n for _, n, _ in updates)
        mean = {k: sum(w[k] * (n / total) for w, n, _ in updates) for k in updates[0][0]}
        self.model.load_state_dict(mean)

    @torch.no_grad()
    def test(self, x, y):
        return ((self.model(x) > 0) == (y > 0.5)).float().mean().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--rounds", type=int, default=20)
    cli.add_argument("--sites", type=int, default=4)
    cli.add_argument("--patients", type=int, default=96)
    cli.add_argument("--workers", type=int, default=3)
    cli.add_argument("--lr", type=float, default=0.05)
    args = cli.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    hospitals = [Hospital(s, args.patients, args.workers) for s in range(args.sites)]
    held_out = Vitals(99 % args.sites, 200)
    tx, ty = (torch.stack(c) for c in zip(*[held_out[i] for i in range(len(held_out))]))
    server = Server()
    for r in range(args.rounds):
        updates = [h.train(server.broadcast(), args.lr * 0.97 ** r) for h in hospitals]
        server.aggregate(updates)
        if r % 5 == 4:
            mean = sum(u[2] for u in updates) / len(updates)
            print(f"round {r + 1}: local loss {mean:.3f}, test accuracy {server.test(tx, ty):.3f}, "
                  f"slowest site {max(h.seconds for h in hospitals):.1f}s so far", flush=True)


if __name__ == "__main__":
    main()
