"""Kiln fault prediction, streaming temperature runs from the plant historian; run names travel with the numbers."""
import dataclasses
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


@dataclasses.dataclass(frozen=True)
class Settings:
    kilns: int = 12
    runs: int = 50
    probes: int = 6
    minutes: int = 360
    latency: float = 0.003
    batch: int = 8
    readers: int = 1
    remote: float = 0.07


class Historian:
    def __init__(self, s):
        self.s = s

    def run(self, kiln, n):
        time.sleep(self.s.latency)
        rng = np.random.default_rng(kiln * 100 + n)
        fault = int(rng.random() < 0.4)
        curve = 900 * (1 - np.exp(-np.arange(self.s.minutes) / 60))
        return curve + rng.normal(size=(self.s.probes, self.s.minutes)) * (4 + 8 * fault), fault


class Runs(IterableDataset):
    def __init__(self, historian, s):
        self.historian, self.s = historian, s

    def __len__(self):
        return self.s.kilns * self.s.runs

    def __iter__(self):
        me = get_worker_info()
        start, step = (me.id, me.num_workers) if me else (0, 1)
        for n in range(self.s.runs):
            for kiln in range(start, self.s.kilns, step):
                curves, fault = self.historian.run(kiln, n)
                smooth = np.stack([np.convolve(c, np.ones(15) / 15, "same") for c in curves])
                rough = (curves - smooth)[:, 15:-15]
                yield {
                    "name": f"kiln{kiln:02d}/run{n:03d}",
                    "level": torch.from_numpy(smooth[:, ::10].astype(np.float32) / 900),
                    "rough": torch.from_numpy(rough.std(1).astype(np.float32)),
                    "fault": fault,
                }


class FaultNet(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.level = nn.Linear(s.probes * s.minutes // 10, 8)
        self.out = nn.Linear(8 + s.probes, 2)

    def forward(self, batch):
        return self.out(torch.cat([torch.tanh(self.level(batch["level"].flatten(1))), batch["rough"] / 10], 1))


def fit(s):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Runs(Historian(s), s), batch_size=s.batch, num_workers=s.readers)
    net, worst = FaultNet(s), {}
    opt = torch.optim.AdamW(net.parameters(), 1e-2)
    began = time.time()
    for step, batch in enumerate(loader):
        each = nn.functional.cross_entropy(net(batch), batch["fault"], reduction="none")
        opt.zero_grad()
        each.mean().backward()
        opt.step()
        time.sleep(s.remote)  # the physical model answers
        k = int(each.argmax())
        worst[batch["name"][k]] = round(each[k].item(), 2)
        if step % 15 == 0:
            print(f"step {step} loss {each.mean().item():.3f} {time.time() - began:.1f}s", flush=True)
    print("hardest:", sorted(worst, key=worst.get)[-3:])


if __name__ == "__main__":
    fit(Settings())
