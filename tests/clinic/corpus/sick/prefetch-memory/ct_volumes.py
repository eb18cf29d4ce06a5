# cause: prefetch-memory
# also: worker-out-of-memory
# limits: memory=1200M
"""Lung nodule scoring on CT sub-volumes."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LOADER = {"batch_size": 12, "num_workers": 2, "prefetch_factor": 24, "shuffle": True, "persistent_workers": True}


class SubVolumes(Dataset):
    side = 64

    def __init__(self, cases, seed=0):
        rng = np.random.default_rng(seed)
        self.centre = rng.uniform(0.3, 0.7, (cases, 3)).astype(np.float32)
        self.radius = rng.uniform(0.03, 0.12, cases).astype(np.float32)
        self.axis = np.linspace(0, 1, self.side, dtype=np.float32)

    def __len__(self):
        return len(self.radius)

    def window(self, hu, lo, hi):
        return np.clip((hu - lo) / (hi - lo), 0, 1)

    def __getitem__(self, k):
        z, y, x = (self.axis - c for c in self.centre[k])
        r2 = z[:, None, None] ** 2 + y[None, :, None] ** 2 + x[None, None, :] ** 2
        hu = -800 + 900 * np.exp(-r2 / self.radius[k] ** 2)
        hu += 40 * torch.randn(self.side, self.side, self.side).numpy()
        vol = np.stack([self.window(hu, -1000, 400), self.window(hu, -160, 240), self.window(hu, -600, 1500)])
        return torch.from_numpy(vol), torch.tensor(float(self.radius[k] > 0.075))


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv3d(3, 8, 4, stride=4)
        self.mid = nn.Sequential(nn.ReLU(), nn.Conv3d(8, 12, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(12, 12, 3), nn.ReLU())
        self.head = nn.Linear(12, 1)

    def forward(self, v):
        return self.head(self.mid(self.stem(v)).amax((2, 3, 4))).squeeze(1)


def augment_consistency(net, v):
    """Two flipped views should agree."""
    return (net(v.flip(2)) - net(v.flip(3))).square().mean()


def main():
    torch.manual_seed(0)
    loader = DataLoader(SubVolumes(480), **LOADER)
    net = Scorer()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(1):
        for step, (v, y) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(net(v), y) + 0.1 * augment_consistency(net, v)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 5 == 0:
                print(f"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
