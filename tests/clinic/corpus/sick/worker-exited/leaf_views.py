# cause: worker-exited
"""Leaf disease classifier. Each picture carries its own capture recipe, written on the command line of the camera rig."""
import argparse
import shlex
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset


def recipe_parser():
    p = argparse.ArgumentParser(prog="rig", add_help=False)
    p.add_argument("--rotate", type=float, default=0.0)
    p.add_argument("--gain", type=float, default=1.0)
    p.add_argument("--blur", type=float, default=0.0)
    p.add_argument("--mirror", action="store_true")
    p.add_argument("--lens", choices=["wide", "macro"], default="wide")
    return p


def shoot(folder: Path, n: int, classes: int):
    rng = np.random.default_rng(71)
    for k in range(n):
        label = k % classes
        yy, xx = np.mgrid[:72, :72]
        spots = 60 * (np.sin(xx * (label + 2) / 11) * np.cos(yy * (label + 1) / 9) > 0.4)
        img = np.stack([70 + spots, 120 - spots, 60 + rng.integers(0, 30, (72, 72))], -1).astype(np.uint8)
        Image.fromarray(img).save(folder / f"{k:04d}_{label}.png", compress_level=1)
        flags = [f"--rotate {rng.integers(-20, 20)}", f"--gain {rng.uniform(0.8, 1.2):.2f}"]
        if rng.random() < 0.4:
            flags.append("--mirror")
        if rng.random() < 0.3:
            flags.append("--lens macro")
        if k == 207:
            flags.append("--gain 1,05")
        (folder / f"{k:04d}_{label}.rig").write_text(" ".join(flags))


class Rig:
    """Undoes what the camera rig did."""

    def __init__(self):
        self.parser = recipe_parser()

    def __call__(self, img, line):
        opts = self.parser.parse_args(shlex.split(line))
        if opts.mirror:
            img = img.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        img = ImageEnhance.Brightness(img.rotate(-opts.rotate)).enhance(1 / opts.gain)
        if opts.blur:
            img = img.filter(ImageFilter.GaussianBlur(opts.blur))
        return img.crop((12, 12, 60, 60)) if opts.lens == "wide" else img.resize((48, 48))


class Leaves(Dataset):
    def __init__(self, folder: Path, undo):
        self.files = sorted(folder.glob("*.png"))
        self.undo = undo

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        path = self.files[i]
        time.sleep(0.003)
        img = self.undo(Image.open(path).convert("RGB"), path.with_suffix(".rig").read_text())
        x = torch.from_numpy(np.asarray(img, np.float32) / 127.5 - 1)
        return x.permute(2, 0, 1).contiguous(), int(path.stem[-1])


class ConvNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        layers, c = [], 3
        for width in (16, 32, 64):
            layers += [nn.Conv2d(c, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            c = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(c, classes)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--classes", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="leaves_") as tmp:
        shoot(Path(tmp), 400, args.classes)
        loader = DataLoader(Leaves(Path(tmp), Rig()), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
        model = ConvNet(args.classes)
        opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True)
        for epoch in range(args.epochs):
            acc = []
            for x, y in loader:
                out = model(x)
                loss = nn.functional.cross_entropy(out, y, label_smoothing=0.05)
                opt.zero_grad()
                loss.backward()
                opt.step()
                acc.append((out.argmax(1) == y).float().mean().item())
            print(f"epoch {epoch} acc {np.mean(acc):.3f}", flush=True)


if __name__ == "__main__":
    main()
