# cause: prefetch-memory
# also: worker-out-of-memory
# limits: memory=1G
"""Volume classification: large crops, preconditioned optimiser step."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Phantoms(Dataset):
    """Ellipsoids in a noisy cube."""

    def __init__(self, n, side):
        self.n, self.side = n, side
        axis = np.linspace(-1, 1, side, dtype=np.float32)
        self.r2 = axis[:, None, None] ** 2, axis[None, :, None] ** 2, axis[None, None, :] ** 2

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        y = i % 2
        rng = np.random.default_rng(i)
        a, b, c = (3.0, 3.0, 3.0) if y == 0 else rng.uniform(2, 9, 3)
        vol = (a * self.r2[0] + b * self.r2[1] + c * self.r2[2] < 1).astype(np.float32)
        vol += rng.random(self.side, dtype=np.float32) * 0.2
        time.sleep(0.01)
        return torch.from_numpy(vol)[None], y


class VolNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool3d(8)
        self.conv = nn.Conv3d(1, 8, 3)
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(self.pool(x))).mean((2, 3, 4)))


class Averager:
    """Slow moving copy of the weights."""

    def __init__(self, model, decay=0.95):
        self.decay = decay
        self.shadow = {k: v.clone() for k, v in model.state_dict().items()}

    def update(self, model):
        for k, v in model.state_dict().items():
            self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)


def second_order_step(model, loss, opt):
    opt.zero_grad()
    loss.backward()
    opt.step()
    time.sleep(0.35)  # remote preconditioner


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--volumes", type=int, default=320)
    ap.add_argument("--side", type=int, default=96)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--ahead", type=int, default=32)
    a = ap.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(Phantoms(a.volumes, a.side), a.batch, shuffle=True, num_workers=a.workers, prefetch_factor=a.ahead)
    model = VolNet()
    ema = Averager(model)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        second_order_step(model, loss, opt)
        ema.update(model)
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
