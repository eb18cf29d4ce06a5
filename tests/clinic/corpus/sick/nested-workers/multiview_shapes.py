# cause: nested-workers
"""Shape recognition from rendered views. Every object is a bag of views, embedded and pooled."""
import os
import tempfile

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

HYPER = {"objects": 60, "views": 6, "batch": 4, "loader": {"num_workers": 2, "pin_memory": False}, "lr": 2e-3}


class Views(Dataset):
    def __init__(self, folder):
        self.files = sorted(os.path.join(folder, f) for f in os.listdir(folder))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with Image.open(self.files[i]) as im:
            return torch.from_numpy(np.array(im, dtype=np.float32) / 255)[None]


class Objects(Dataset):
    def __init__(self, root, loader_options):
        self.folders = sorted(os.path.join(root, d) for d in os.listdir(root))
        self.options = loader_options

    def __len__(self):
        return len(self.folders)

    def __getitem__(self, i):
        views = torch.cat(list(DataLoader(Views(self.folders[i]), batch_size=3, **self.options)))
        return views - views.mean(), int(self.folders[i][-1])


def render(root, h):
    rng = np.random.default_rng(77)
    for o in range(h["objects"]):
        kind = o % 3
        folder = os.path.join(root, f"{o:03d}_{kind}")
        os.mkdir(folder)
        for v in range(h["views"]):
            im = Image.new("L", (32, 32), 20)
            d = ImageDraw.Draw(im)
            x, y = rng.integers(2, 12, 2).tolist()
            box = [x, y, x + 16, y + 6 + 2 * v]
            (d.rectangle, d.ellipse, d.line)[kind](box, fill=230)
            im.save(os.path.join(folder, f"{v}.png"))


class MultiView(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(1, 12, 5, 2), nn.ReLU(), nn.Conv2d(12, 24, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.g = nn.Linear(24, 3)

    def forward(self, x):
        b, v = x.shape[:2]
        return self.g(self.f(x.flatten(0, 1)).view(b, v, -1).amax(1))


def fit(h):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        render(root, h)
        data = Objects(root, h["loader"])
        model = MultiView()
        opt = torch.optim.Adam(model.parameters(), lr=h["lr"])
        for step, (x, y) in enumerate(DataLoader(data, h["batch"], shuffle=True, **h["loader"])):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    fit(HYPER)
