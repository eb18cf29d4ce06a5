# cause: too-few-workers
# also: storage-bound, not-fed-fast-enough
"""Rain nowcasting; station records are asked for one by one from the regional server."""
import json
import logging
import math
import random
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SETTINGS = json.loads("""{"stations": 320, "hours": 24, "delay": 0.014, "batch": 10,
  "io": {"num_workers": 1, "prefetch_factor": 4}, "optim": {"lr": 0.002, "weight_decay": 0.01}}""")
logger = logging.getLogger("nowcast")


class StationServer:
    def __init__(self, settings):
        self.hours, self.delay = settings["hours"], settings["delay"]

    def query(self, station):
        time.sleep(self.delay)
        rng = random.Random(station)
        phase = rng.random() * 6.28
        return [(math.sin(phase + h / 4), rng.random(), rng.gauss(0, 0.1)) for h in range(self.hours + 1)]


class Stations(IterableDataset):
    def __init__(self, settings):
        self.n = settings["stations"]
        self.server = StationServer(settings)

    def __iter__(self):
        info = get_worker_info()
        mine = range(self.n) if info is None else range(info.id, self.n, info.num_workers)
        for s in mine:
            rows = torch.tensor(self.server.query(s))
            yield rows[:-1], rows[-1, 0]


class Nowcast(nn.Module):
    def __init__(self, hours):
        super().__init__()
        self.rnn = nn.GRU(3, 24, batch_first=True)
        self.fc = nn.Linear(24, 1)

    def forward(self, x):
        return self.fc(self.rnn(x)[1][0]).squeeze(-1)


def main():
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s %(message)s")
    torch.set_num_threads(1)
    s = SETTINGS
    loader = DataLoader(Stations(s), batch_size=s["batch"], **s["io"])
    model = Nowcast(s["hours"])
    opt = torch.optim.AdamW(model.parameters(), **s["optim"])
    seen, start = 0, time.time()
    for x, y in loader:
        loss = nn.functional.smooth_l1_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        opt.step()
        seen += len(y)
        if seen % 80 == 0:
            logger.info("%d stations, loss %.4f, %.1f/s", seen, loss.item(), seen / (time.time() - start))


if __name__ == "__main__":
    main()
