# cause: socket-path-too-long
"""Hardness regression from micrographs.  Every experiment keeps its own scratch space next to its logs."""
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "project": "alloy-hardness", "dataset": "micrographs_v4", "backbone": "convstem12", "optimizer": "adamw",
    "lr": 0.002, "weight_decay": 0.01, "batch": 12, "epochs": 2, "workers": 2, "size": 96, "loss": "huber",
    "augment": "flip-blur", "seed": 17,
}


def experiment_name(cfg):
    parts = [cfg["dataset"], cfg["backbone"], cfg["optimizer"]]
    parts += [f"{k}={cfg[k]}" for k in ("lr", "weight_decay", "batch", "loss", "augment", "seed")]
    digest = hashlib.sha1(json.dumps(cfg, sort_keys=True).encode()).hexdigest()[:10]
    return "-".join(parts) + "-" + digest


class Workspace:
    def __init__(self, cfg):
        self.base = Path(tempfile.mkdtemp(prefix="runs_"))
        self.run = self.base / cfg["project"] / experiment_name(cfg)
        self.scratch = self.run / "scratch"
        self.scratch.mkdir(parents=True)
        (self.run / "config.json").write_text(json.dumps(cfg, indent=1))
        # node-local /tmp is wiped by the scheduler, so temporary files belong to the run
        os.environ["TMPDIR"] = str(self.scratch)
        tempfile.tempdir = None

    def log(self, **values):
        with open(self.run / "metrics.jsonl", "a") as f:
            f.write(json.dumps({"time": time.time(), **values}) + "\n")
        print(values, flush=True)

    def close(self):
        shutil.rmtree(self.base, ignore_errors=True)


def synthesise(folder, n, seed):
    rng = np.random.default_rng(seed)
    table = []
    for k in range(n):
        grains = int(rng.integers(10, 90))
        px, py = rng.uniform(0, 160, grains), rng.uniform(0, 160, grains)
        yy, xx = np.mgrid[0:160, 0:160]
        owner = ((xx[..., None] - px) ** 2 + (yy[..., None] - py) ** 2).argmin(-1)
        tone = rng.uniform(60, 220, grains)[owner]
        name = f"m{k:04d}.png"
        Image.fromarray((tone + rng.normal(0, 5, tone.shape)).clip(0, 255).astype(np.uint8)).save(folder / name)
        table.append((name, 1.0 / np.sqrt(160.0 / grains)))
    return table


class Micrographs(Dataset):
    def __init__(self, folder, table, size):
        self.folder, self.table, self.size = folder, table, size

    def __len__(self):
        return len(self.table)

    def __getitem__(self, k):
        name, target = self.table[k]
        im = Image.open(self.folder / name).convert("L")
        if torch.rand(()) < 0.5:
            im = im.transpose(Image.FLIP_TOP_BOTTOM)
        soft = im.filter(ImageFilter.GaussianBlur(float(torch.rand(()) * 1.5)))
        edges = soft.filter(ImageFilter.FIND_EDGES)
        planes = [np.asarray(p.resize((self.size, self.size), Image.LANCZOS), dtype=np.float32) for p in (soft, edges)]
        return torch.from_numpy(np.stack(planes) / 255.0), torch.tensor(target, dtype=torch.float32)


class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 12, 5, 2), nn.ReLU(), nn.Conv2d(12, 24, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Linear(96, 1)

    def forward(self, x):
        return self.head(self.body(x).flatten(1)).squeeze(1)


def main(argv):
    cfg = dict(CONFIG)
    for item in argv:
        key, value = item.split("=", 1)
        cfg[key] = type(cfg[key])(value)
    torch.manual_seed(cfg["seed"])
    ws = Workspace(cfg)
    try:
        pictures = ws.run / "pictures"
        pictures.mkdir()
        table = synthesise(pictures, 144, cfg["seed"])
        loader = DataLoader(Micrographs(pictures, table, cfg["size"]), batch_size=cfg["batch"], shuffle=True,
                            num_workers=cfg["workers"], persistent_workers=True)
        net = Stem()
        opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"])
        for epoch in range(cfg["epochs"]):
            total = 0.0
            for x, y in loader:
                loss = nn.functional.huber_loss(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            ws.log(epoch=epoch, loss=total / len(loader))
            torch.save(net.state_dict(), ws.run / "last.pt")
    finally:
        ws.close()


if __name__ == "__main__":
    main(sys.argv[1:])
