# cause: class-not-importable
"""Generic trainer: the data source is a recipe file, loaded by path."""
import argparse
import atexit
import importlib.util
import os
import shutil
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader

RECIPE = '''
import torch
from torch.utils.data import Dataset


class Spirals(Dataset):
    """Two interleaved spirals with noise."""

    def __init__(self, n, turns=1.5, noise=0.05):
        self.n, self.turns, self.noise = n, turns, noise

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        y = i % 2
        r = torch.tensor((i // 2) / (self.n / 2))
        a = r * self.turns * 6.2832 + y * 3.1416
        xy = torch.stack([r * a.cos(), r * a.sin()])
        return xy + self.noise * torch.randn(2), y


def build(**kw):
    return Spirals(**kw)
'''


def write_recipe():
    folder = tempfile.mkdtemp(prefix="recipes_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "spirals_recipe.py")
    with open(path, "w") as fh:
        fh.write(RECIPE)
    return path


def load_recipe(path):
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, x):
        return self.body(x)


def fit(net, loader, epochs, lr):
    opt = torch.optim.Adam(net.parameters(), lr)
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--recipe")
    ap.add_argument("--n", type=int, default=1600)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--width", type=int, default=48)
    a = ap.parse_args()
    recipe = load_recipe(a.recipe or write_recipe())
    data = recipe.build(n=a.n)
    loader = DataLoader(data, 64, shuffle=True, num_workers=2, multiprocessing_context="forkserver")
    fit(Net(a.width), loader, a.epochs, 3e-3)


if __name__ == "__main__":
    main()
