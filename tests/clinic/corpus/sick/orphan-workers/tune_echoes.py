# cause: orphan-workers
"""Small hyper-parameter search for an echo-sounder classifier. Every trial is a process of its own; a trial that uses up its time is ended."""
import argparse
import json
import multiprocessing as mp
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PINGS = 128


@dataclass
class Trial:
    name: str
    lr: float
    width: int
    batch: int = 8
    workers: int = 2


class Tape:
    """Pings lie on a tape robot. Cartridges that are mounted answer at once, others are fetched first."""

    def __init__(self, folder: Path, fetch: float):
        self.folder, self.fetch = folder, fetch
        self.mounted = set(json.loads((folder / "mounted.json").read_text()))

    def read(self, cartridge):
        if cartridge not in self.mounted:
            time.sleep(self.fetch)
        time.sleep(0.004)
        return np.load(self.folder / f"c{cartridge:03d}.npy")


class Echoes(Dataset):
    def __init__(self, folder: Path, count: int, fetch: float):
        self.tape, self.count = Tape(folder, fetch), count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        block = self.tape.read(i // 20)
        ping = block[i % 20]
        spec = np.abs(np.fft.rfft(ping * np.hanning(PINGS)))
        return torch.from_numpy(np.log1p(spec)).float(), i % 4


def record(folder: Path, cartridges: int):
    rng = np.random.default_rng(12)
    t = np.arange(PINGS)
    for c in range(cartridges):
        kinds = (np.arange(20) + 20 * c) % 4
        np.save(folder / f"c{c:03d}.npy", np.sin(t * (0.2 + 0.3 * kinds[:, None])) + rng.normal(0, 0.4, (20, PINGS)))
    (folder / "mounted.json").write_text(json.dumps([c for c in range(cartridges) if c % 10 < 3]))


def run_trial(trial: Trial, folder: Path, count: int, fetch: float, scores):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Echoes(folder, count, fetch), trial.batch, num_workers=trial.workers)
    model = nn.Sequential(nn.Linear(PINGS // 2 + 1, trial.width), nn.ReLU(), nn.Linear(trial.width, 4))
    opt = torch.optim.Adam(model.parameters(), trial.lr)
    smooth = None
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        smooth = loss.item() if smooth is None else 0.9 * smooth + 0.1 * loss.item()
        scores[trial.name] = smooth
    print(f"{trial.name} went through", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--minutes", type=float, default=0.11, help="time for one trial")
    ap.add_argument("--cartridges", type=int, default=30)
    ap.add_argument("--fetch", type=float, default=6.0, help="seconds to bring a cartridge")
    args = ap.parse_args()
    trials = [Trial("a", 1e-2, 32), Trial("b", 1e-3, 64)]
    with tempfile.TemporaryDirectory() as tmp, mp.Manager() as manager:
        record(Path(tmp), args.cartridges)
        scores = manager.dict()
        for trial in trials:
            p = mp.Process(target=run_trial, args=(trial, Path(tmp), args.cartridges * 20, args.fetch, scores))
            p.start()
            p.join(60 * args.minutes)
            if p.is_alive():
                p.kill()
                p.join()
            print(f"trial {asdict(trial)} score {scores.get(trial.name, float('nan')):.4f}", flush=True)
        best = min(scores.keys(), key=scores.get, default=None)
        print("best:", best, flush=True)


if __name__ == "__main__":
    main()
