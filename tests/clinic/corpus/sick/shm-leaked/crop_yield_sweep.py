# cause: shm-leaked
# also: shm-exhausted
# limits: shm=192M
"""Learning-rate sweep for a crop yield regressor. Each trial runs in its own process with a time budget."""
import multiprocessing as mp
import os
import signal
import time
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing
from torch import nn
from torch.utils.data import DataLoader, Dataset

# many tiles are open at once, descriptors were running out on the cluster
torch.multiprocessing.set_sharing_strategy("file_system")

TRIAL_SECONDS = 3.0


class FieldTiles(Dataset):
    """Multispectral tiles with the yield of the field."""

    def __init__(self, count, bands=6, side=128):
        self.count, self.bands, self.side = count, bands, side

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        green = rng.random()
        tile = rng.random((self.bands, self.side, self.side), dtype=np.float32) * 0.5
        tile[3] += green
        return torch.from_numpy(tile), np.float32(green * 9)


def make_model(bands=6):
    return nn.Sequential(nn.Conv2d(bands, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, stride=2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 1))


def make_loader(workers=2):
    return DataLoader(FieldTiles(3000), batch_size=24, shuffle=True, num_workers=workers, prefetch_factor=2)


def train(rate, steps, report):
    torch.manual_seed(0)
    model = make_model()
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    step = 0
    while step < steps:
        for tiles, harvest in make_loader():
            loss = nn.functional.mse_loss(model(tiles).squeeze(1), harvest)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            report(step, loss.item())
            step += 1
            if step >= steps:
                break
    return model


def trial(rate, pipe):
    train(rate, 10_000, lambda step, loss: pipe.send((step, loss)))


def children_of(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found.append(int(child))
            found.extend(children_of(int(child)))
    return found


def end_tree(pid):
    """The whole family of a trial has to go before the next one starts."""
    for p in children_of(pid) + [pid]:
        try:
            os.kill(p, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run_trial(rate):
    ours, theirs = mp.Pipe()
    process = mp.Process(target=trial, args=(rate, theirs))
    process.start()
    theirs.close()
    deadline = time.time() + TRIAL_SECONDS
    losses = []
    while time.time() < deadline:
        if ours.poll(0.2):
            try:
                losses.append(ours.recv()[1])
            except EOFError:
                break
    end_tree(process.pid)
    process.join()
    return float(np.mean(losses[-5:])) if losses else float("inf")


def main():
    scores = {}
    for rate in (0.1, 0.05, 0.03, 0.01, 0.005, 0.003, 0.001, 0.0003):
        scores[rate] = run_trial(rate)
        print(f"rate {rate}: {scores[rate]:.3f}", flush=True)
    best = min(scores, key=scores.get)
    print("best rate", best, flush=True)
    train(best, 40, lambda step, loss: print(f"final {step}: {loss:.3f}", flush=True))


if __name__ == "__main__":
    main()
