"""Small search over learning rates; each trial is a process with a time budget and ends itself when told."""
import json
import multiprocessing as mp
import os
import tempfile
import time
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

GRID = [{"lr": 1e-3, "width": 64}, {"lr": 3e-3, "width": 80}, {"lr": 1e-2, "width": 64}]
BUDGET = 8.0


def relax(field, sweeps):
    for _ in range(sweeps):
        field[1:-1, 1:-1] = 0.25 * (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:])
    return field


class Plates(Dataset):
    def __init__(self, n, mesh=56):
        self.n, self.mesh = n, mesh

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        field = rng.random((self.mesh, self.mesh), dtype=np.float32)
        source = field.copy()
        return torch.from_numpy(source)[None], torch.from_numpy(relax(field, 200))[None]


@contextmanager
def open_loaders(batch=16, workers=2):
    parts = random_split(Plates(2000), [1920, 80], generator=torch.Generator().manual_seed(0))
    loaders = [DataLoader(p, batch, shuffle=k == 0, num_workers=workers, persistent_workers=True) for k, p in enumerate(parts)]
    try:
        yield loaders
    finally:
        loaders.clear()


class Trial:
    def __init__(self, number, params, folder):
        self.number, self.params = number, params
        self.path = os.path.join(folder, f"{number}.json")

    def net(self):
        w = self.params["width"]
        return nn.Sequential(nn.Conv2d(1, w, 3, padding=1), nn.ReLU(), nn.Conv2d(w, w, 3, padding=1), nn.ReLU(),
                             nn.Conv2d(w, 1, 3, padding=1))

    def run(self, stop):
        torch.manual_seed(self.number)
        torch.set_num_threads(1)
        model = self.net()
        opt = torch.optim.Adam(model.parameters(), self.params["lr"])
        steps = 0
        with open_loaders() as (train, val):
            for x, y in train:
                loss = nn.functional.mse_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                steps += 1
                if stop.is_set():
                    break
            with torch.no_grad():
                score = float(np.mean([nn.functional.mse_loss(model(x), y).item() for x, y in val]))
        with open(self.path, "w") as f:
            json.dump({"score": score, "steps": steps, **self.params}, f)


def supervise(trial, budget):
    stop = mp.Event()
    proc = mp.Process(target=trial.run, args=(stop,))
    proc.start()
    proc.join(budget)
    stop.set()
    proc.join()
    return proc.exitcode


def main():
    with tempfile.TemporaryDirectory() as folder:
        trials = [Trial(i, p, folder) for i, p in enumerate(GRID)]
        results = []
        for t in trials:
            began = time.time()
            code = supervise(t, BUDGET)
            with open(t.path) as f:
                results.append(json.load(f))
            print(f"trial {t.number} exit {code} {time.time() - began:.1f}s {results[-1]}", flush=True)
        print("best", min(results, key=lambda r: r["score"]))


if __name__ == "__main__":
    main()
