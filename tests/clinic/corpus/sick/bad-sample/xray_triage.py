# cause: bad-sample
"""Chest film triage: normal / abnormal, images as PNG, labels in a table."""
import json
import os
import tempfile

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

PARAMS = {"films": 400, "side": 48, "batch": 16, "workers": 2, "lr": 1e-3, "min_contrast": 4.0}


class Film:
    def __init__(self, path):
        with Image.open(path) as im:
            self.pixels = np.asarray(im, dtype=np.float32)

    @property
    def contrast(self):
        return float(self.pixels.std())

    def equalised(self):
        flat = self.pixels.ravel()
        rank = np.searchsorted(np.sort(flat), flat) / flat.size
        return rank.reshape(self.pixels.shape).astype(np.float32)


class Triage(Dataset):
    def __init__(self, root, table, min_contrast):
        self.root, self.table, self.min_contrast = root, table, min_contrast
        self.ids = sorted(table)

    def __len__(self):
        return len(self.ids)

    def _image(self, name):
        film = Film(os.path.join(self.root, name + ".png"))
        if film.contrast < self.min_contrast:
            return None
        return torch.from_numpy(film.equalised())[None]

    def __getitem__(self, i):
        name = self.ids[i]
        return {"image": self._image(name), "label": self.table[name], "id": name}


def expose(root, p):
    rng = np.random.default_rng(21)
    table = {}
    for i in range(p["films"]):
        y = int(rng.random() < 0.4)
        im = rng.normal(110, 25, (p["side"], p["side"]))
        if y:
            im[14:24, 20:30] += 70
        if i == 277:
            im = np.full_like(im, 251.0)
        name = f"film{i:04d}"
        Image.fromarray(im.clip(0, 255).astype(np.uint8)).save(os.path.join(root, name + ".png"))
        table[name] = y
    with open(os.path.join(root, "labels.json"), "w") as f:
        json.dump(table, f)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2), nn.ReLU(), nn.AdaptiveMaxPool2d(2))
        self.fc = nn.Linear(64, 2)

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


def train(p):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        expose(root, p)
        with open(os.path.join(root, "labels.json")) as f:
            data = Triage(root, json.load(f), p["min_contrast"])
        loader = DataLoader(data, p["batch"], shuffle=True, num_workers=p["workers"])
        net = Net()
        opt = torch.optim.Adam(net.parameters(), lr=p["lr"])
        for k, b in enumerate(loader):
            loss = nn.functional.cross_entropy(net(b["image"]), b["label"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"{k + 1}/{len(loader)} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train(PARAMS)
