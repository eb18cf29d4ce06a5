# cause: workers-not-worth-it
"""Residual dynamics of a damped pendulum: fit what the textbook model leaves over."""
import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


def simulate(n, dt=0.02, g=9.81, drag=0.15):
    """n one-step transitions from random states (integrated in one go)."""
    gen = torch.Generator().manual_seed(11)
    theta = (torch.rand(n, generator=gen) * 2 - 1) * 3.1
    omega = torch.randn(n, generator=gen) * 2.0
    torque = torch.randn(n, generator=gen)
    acc = -g * torch.sin(theta) - drag * omega * omega.abs() + torque
    ideal = -g * torch.sin(theta) + torque
    state = torch.stack([theta.sin(), theta.cos(), omega, torque], dim=1)
    residual = ((acc - ideal) * dt).unsqueeze(1)
    return state, residual


class TransitionDataset(Dataset):
    def __init__(self, n):
        self.state, self.residual = simulate(n)
        self.mean, self.std = self.state.mean(0), self.state.std(0)
        self.state = (self.state - self.mean) / self.std

    def __len__(self):
        return self.state.shape[0]

    def __getitem__(self, idx):
        return self.state[idx], self.residual[idx]


class ResidualNet(nn.Sequential):
    def __init__(self, width=24):
        super().__init__(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))


def train_one_epoch(net, loader, opt, loss_fn, log_every):
    running = 0.0
    for step, (x, y) in enumerate(loader, 1):
        opt.zero_grad()
        loss = loss_fn(net(x), y)
        loss.backward()
        opt.step()
        running += loss.detach()
        if step % log_every == 0:
            print(f"   step {step:5d}  mse {running.item() / step:.6f}", flush=True)
    return running.item() / step


@torch.no_grad()
def evaluate(net, subset):
    idx = torch.as_tensor(subset.indices)
    ds = subset.dataset
    return nn.functional.mse_loss(net(ds.state[idx]), ds.residual[idx]).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=40000)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--num-workers", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)
    data = TransitionDataset(args.transitions)
    n_val = len(data) // 10
    train_set, val_set = random_split(data, [len(data) - n_val, n_val])
    loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True,
                        num_workers=args.num_workers, persistent_workers=args.num_workers > 0)

    net = ResidualNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.02)
    loss_fn = nn.MSELoss()
    best = float("inf")
    for epoch in range(args.epochs):
        t0 = time.perf_counter()
        train_mse = train_one_epoch(net, loader, opt, loss_fn, log_every=1000)
        val_mse = evaluate(net, val_set)
        best = min(best, val_mse)
        print(f"epoch {epoch}: train {train_mse:.6f} val {val_mse:.6f} best {best:.6f} "
              f"[{time.perf_counter() - t0:.1f}s]", flush=True)


if __name__ == "__main__":
    main()
