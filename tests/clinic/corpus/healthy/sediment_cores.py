# limits: shm=64M
"""Grain-size regression from CT scans of sediment cores: every item reconstructs a core and cuts one plug from it."""
import logging

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("cores")
DEPTH, WIDTH, PLUG = 160, 96, 24


class Cores(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def reconstruct(self, i):
        rng = np.random.default_rng(i)
        grain = rng.uniform(1, 5)
        vol = torch.from_numpy(rng.normal(size=(1, 1, DEPTH, WIDTH, WIDTH)).astype(np.float32))
        k = 2 * int(grain) + 1
        vol = nn.functional.avg_pool3d(vol, k, 1, k // 2)
        return vol[0, 0] / vol.std(), grain

    def __getitem__(self, i):
        vol, grain = self.reconstruct(i)
        z = int(torch.randint(0, DEPTH - PLUG, ()))
        y, x = torch.randint(0, WIDTH - PLUG, (2,)).tolist()
        plug = vol[z:z + PLUG, y:y + PLUG, x:x + PLUG]
        return plug.clone(), torch.tensor([grain, z / DEPTH])


def as_lists(items):
    return [p for p, _ in items], torch.stack([t for _, t in items])


class PlugNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv3d(1, 8, 5, 2), nn.ReLU(), nn.Conv3d(8, 8, 3, 2), nn.ReLU(), nn.Flatten())
        self.out = nn.LazyLinear(1)

    def forward(self, plugs):
        return self.out(self.conv(torch.stack(plugs)[:, None])).squeeze(1)


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Cores(160), batch_size=8, shuffle=True, num_workers=2, collate_fn=as_lists,
                        persistent_workers=True)
    net = PlugNet()
    net([torch.zeros(PLUG, PLUG, PLUG)])
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(2):
        total = 0.0
        for plugs, target in loader:
            loss = nn.functional.mse_loss(net(plugs), target[:, 0])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        log.info("epoch %d mse %.3f", epoch, total / len(loader))


if __name__ == "__main__":
    main()
