# cause: slow-worker-start
# also: workers-restarted
"""Bias correction of balloon soundings. Each probe type is a short epoch of its own, cycled by the schedule."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class Schedule:
    rounds: int = 3
    types: tuple = ("RS41", "M10")
    per_type: int = 160
    batch: int = 8
    start_method: str = "spawn"


class Soundings(Dataset):
    LEVELS = 1200

    def __init__(self, probe, count):
        self.probe, self.count = probe, count
        self.bias = {"RS41": 0.2, "M10": -0.6}[probe]

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng((len(self.probe), i))
        p = np.linspace(1000, 10, self.LEVELS)
        t = 288 * (p / 1013) ** 0.19
        raw = t + self.bias * (1 - p / 1000) * 4 + rng.normal(0, 0.4, p.size)
        k = np.hanning(61) / np.hanning(61).sum()
        for _ in range(40):                       # iterated smoother of the ground software
            raw = np.convolve(np.pad(raw, 30, mode="edge"), k, "valid")
        pick = np.linspace(0, self.LEVELS - 1, 100).astype(int)
        x = np.stack([raw[pick] / 100 - 2.5, np.log(p[pick]) / 7])
        y = (t - raw)[pick]
        return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.astype(np.float32))


def soundings_loader(probe, plan):
    return DataLoader(Soundings(probe, plan.per_type), batch_size=plan.batch, shuffle=True, num_workers=2,
                      multiprocessing_context=plan.start_method)


class Corrector(nn.Module):
    def __init__(self, types):
        super().__init__()
        self.types = list(types)
        self.emb = nn.Embedding(len(self.types), 4)
        self.net = nn.Sequential(nn.Conv1d(6, 16, 5, padding=2), nn.ReLU(), nn.Conv1d(16, 1, 5, padding=2))

    def forward(self, x, probe):
        e = self.emb(torch.full((len(x),), self.types.index(probe)))[:, :, None].expand(-1, -1, x.shape[-1])
        return self.net(torch.cat([x, e], 1)).squeeze(1)


def main(plan=Schedule()):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Corrector(plan.types)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    for rnd in range(plan.rounds):
        for probe in plan.types:
            t0, losses = time.perf_counter(), []
            for x, y in soundings_loader(probe, plan):
                loss = nn.functional.mse_loss(model(x, probe), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
            print(f"round {rnd} {probe}: mse {np.mean(losses):.4f} ({time.perf_counter() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
