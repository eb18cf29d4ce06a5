# cause: worker-exited
"""Predict run time of a kernel from the command line it was compiled with; logs of an autotuner."""
import argparse
import math
import random
import shlex
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PASSES = ["licm", "gvn", "sroa", "slp", "unswitch", "inline", "peel", "fuse"]


def command_parser():
    """The options of the autotuner's own command line, as in its command.py."""
    parser = argparse.ArgumentParser(prog="tune", add_help=False)
    parser.add_argument("-O", dest="level", choices=["0", "1", "2", "3", "s"], default="2")
    parser.add_argument("--unroll", type=int, default=1)
    parser.add_argument("--tile", type=int, nargs=2, default=[16, 16])
    parser.add_argument("--pass", dest="passes", action="append", default=[], choices=PASSES)
    parser.add_argument("--fast-math", action="store_true")
    parser.add_argument("kernel")
    return parser


def true_seconds(level, unroll, tile, passes, fast, kernel):
    cost = 3.0 + 0.4 * (kernel % 7) - 0.35 * "0123s".index(level) + 0.1 * abs(math.log2(unroll) - 2)
    cost += 0.08 * abs(math.log2(tile[0] * tile[1]) - 9) - 0.07 * len(set(passes)) - 0.2 * fast
    return cost


class TuningLog:
    def __init__(self, entries, seed):
        rng = random.Random(seed)
        self.lines, self.seconds = [], []
        for number in range(entries):
            level = rng.choice("0123s")
            unroll = rng.choice([1, 2, 4, 8, 16])
            tile = rng.choice([8, 16, 32, 64]), rng.choice([8, 16, 32, 64])
            passes = rng.sample(PASSES, rng.randint(0, 5))
            fast = rng.random() < 0.4
            kernel = rng.randrange(40)
            words = [f"-O{level}", "--unroll", str(unroll), "--tile", str(tile[0]), str(tile[1])]
            words += [w for p in passes for w in ("--pass", p)] + ["--fast-math"] * fast + [f"kernel_{kernel:02d}.c"]
            self.lines.append(shlex.join(words))
            self.seconds.append(true_seconds(level, unroll, tile, passes, fast, kernel) + rng.gauss(0, 0.05))
        if seed == 0:
            self.lines[entries // 2 + 7] = "-Ofast --unroll 4 --tile 32 32 --pass gvn kernel_11.c"


class FlagDataset(Dataset):
    def __init__(self, log):
        self.lines = np.array(log.lines)
        self.seconds = np.array(log.seconds, dtype=np.float32)
        self.parser = command_parser()

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        opts = self.parser.parse_args(shlex.split(str(self.lines[i])))
        x = np.zeros(5 + 2 + 2 + len(PASSES) + 40, dtype=np.float32)
        x["0123s".index(opts.level)] = 1
        x[5], x[6] = math.log2(opts.unroll) / 4, opts.fast_math
        x[7:9] = np.log2(opts.tile) / 6
        for name in opts.passes:
            x[9 + PASSES.index(name)] = 1
        x[17 + int(opts.kernel[7:9])] = 1
        return torch.from_numpy(x), self.seconds[i]


def fit(epochs, loader, test, model):
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    best = float("inf")
    for epoch in range(1, epochs + 1):
        model.train()
        t = time.time()
        for x, y in loader:
            loss = nn.functional.l1_loss(model(x).squeeze(1), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        model.eval()
        with torch.no_grad():
            mae = torch.cat([(model(x).squeeze(1) - y).abs() for x, y in test]).mean().item()
        best = min(best, mae)
        print(f"epoch {epoch}  mae {mae:.4f}  best {best:.4f}  {time.time() - t:.1f} s", flush=True)
    return best


def main():
    torch.manual_seed(9)
    torch.set_num_threads(1)
    loader = DataLoader(FlagDataset(TuningLog(6000, seed=0)), batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)
    test = DataLoader(FlagDataset(TuningLog(600, seed=1)), batch_size=100, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Linear(57, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 1))
    fit(4, loader, test, model)


if __name__ == "__main__":
    main()
