"""Plankton image classification; augmentation draws come from the process-wide generators."""
import io
import random
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

CLASSES, SIDE, EPOCHS = 5, 80, 4
_rng = np.random


def check_random_state(state):
    """None means the shared numpy generator, an int a private one."""
    if state is None:
        return _rng
    return np.random.RandomState(state)


def uniform(lo, hi):
    return random.uniform(lo, hi)


class Rotate:
    def __call__(self, img):
        return img.rotate(uniform(0, 360), resample=Image.BILINEAR)


class Defocus:
    def __init__(self, limit, random_state=None):
        self.limit, self.random_state = limit, random_state

    def __call__(self, img):
        rs = check_random_state(self.random_state)
        return img.filter(ImageFilter.GaussianBlur(rs.uniform(0, self.limit)))


class Crop:
    def __call__(self, img):
        side = int(img.width * (0.7 + 0.3 * torch.rand(()).item()))
        x, y = (torch.rand(2) * (img.width - side)).int().tolist()
        return img.resize((SIDE, SIDE), Image.BILINEAR, box=(x, y, x + side, y + side))


class Centre:
    def __call__(self, img):
        return img.resize((SIDE, SIDE), Image.BILINEAR)


class Plankton(Dataset):
    def __init__(self, count, seed, steps):
        rs = np.random.RandomState(seed)
        self.labels = rs.randint(CLASSES, size=count)
        self.blobs, self.steps = [], steps
        for c in self.labels:
            base = rs.randint(20, 120, size=(10, 10)).astype(np.uint8)
            base[2:4 + c, 3:7] = 230
            buf = io.BytesIO()
            Image.fromarray(base).resize((128, 128), Image.BICUBIC).save(buf, "PNG")
            self.blobs.append(buf.getvalue())

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = Image.open(io.BytesIO(self.blobs[i]))
        for step in self.steps:
            img = step(img)
        return torch.from_numpy(np.asarray(img, np.float32) / 255.0)[None] - 0.5, int(self.labels[i])


def frozen(dataset):
    """The held-out images never change, so they are decoded once."""
    xs, ys = zip(*(dataset[i] for i in range(len(dataset))))
    return TensorDataset(torch.stack(xs), torch.tensor(ys))


def make_model():
    return nn.Sequential(nn.Conv2d(1, 24, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 48, 3, padding=1),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(432, CLASSES))


def main():
    torch.manual_seed(21)
    random.seed(21)
    np.random.seed(21)
    torch.set_num_threads(1)
    train = DataLoader(Plankton(1000, 1, [Rotate(), Defocus(2.0), Crop()]), batch_size=20, shuffle=True,
                       num_workers=2, persistent_workers=True)
    test = DataLoader(frozen(Plankton(80, 2, [Centre()])), batch_size=40)
    model = make_model()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        model.train()
        t0, waited = time.time(), 0.0
        mark = time.time()
        for x, y in train:
            waited += time.time() - mark
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            mark = time.time()
        model.eval()
        with torch.no_grad():
            acc = sum((model(x).argmax(1) == y).sum().item() for x, y in test) / 80
        print(f"epoch {epoch} loss {loss.item():.3f} test acc {acc:.3f} {time.time() - t0:.1f}s data {waited:.2f}s",
              flush=True)


if __name__ == "__main__":
    main()
