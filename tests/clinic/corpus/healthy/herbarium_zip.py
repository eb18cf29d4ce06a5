"""Leaf shape recognition from a zip of pictures."""
import io
import os
import tempfile
import time
import zipfile

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, get_worker_info

CFG = {"leaves": 440, "side": 48, "batch": 16, "workers": 2, "epochs": 2}


class Leaves(Dataset):
    def __init__(self, path, side):
        self.path, self.side = path, side
        self.archive = None
        with zipfile.ZipFile(path) as z:
            self.names = z.namelist()

    def open(self):
        self.archive = zipfile.ZipFile(self.path)

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        if self.archive is None:
            self.open()
        name = self.names[i]
        time.sleep(0.002)
        im = Image.open(io.BytesIO(self.archive.read(name))).convert("RGB").resize((self.side, self.side))
        x = torch.from_numpy(np.array(im, dtype=np.float32) / 255).permute(2, 0, 1)
        return x, int(name.split("/")[0])


def setup(worker_id):
    get_worker_info().dataset.dataset.open()


def press(path, n):
    rng = np.random.default_rng(1)
    with zipfile.ZipFile(path, "w") as z:
        for i in range(n):
            k = i % 4
            im = Image.fromarray(rng.integers(190, 255, (80, 80, 3), dtype=np.uint8))
            d = ImageDraw.Draw(im)
            w = 8 + 7 * k
            d.ellipse([40 - w, 10, 40 + w, 70], fill=(20, int(rng.integers(80, 160)), 30))
            b = io.BytesIO()
            im.save(b, "PNG")
            z.writestr(f"{k}/{i:04d}.png", b.getvalue())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                               nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 4))

    def forward(self, x):
        return self.f(x)


def main(c):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "leaves.zip")
        press(path, c["leaves"])
        train = Subset(Leaves(path, c["side"]), range(368))
        held = Subset(Leaves(path, c["side"]), range(368, 440))
        loader = DataLoader(train, c["batch"], shuffle=True, num_workers=c["workers"], worker_init_fn=setup, persistent_workers=True)
        net = Net()
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        for e in range(c["epochs"]):
            waited, start = 0.0, time.time()
            mark = start
            for x, y in loader:
                waited += time.time() - mark
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                mark = time.time()
            print(f"epoch {e}: loss {loss.item():.3f} {time.time() - start:.1f}s of which data {waited:.1f}s", flush=True)
        net.eval()
        with torch.no_grad():
            hits = sum((net(x).argmax(1) == y).sum().item() for x, y in DataLoader(held, 40))
        print(f"held-out accuracy {hits / len(held):.2f}")


if __name__ == "__main__":
    main(CFG)
