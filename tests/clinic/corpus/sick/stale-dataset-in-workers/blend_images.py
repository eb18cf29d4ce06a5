# cause: stale-dataset-in-workers
"""Image classifier with sample blending that is switched off towards the end."""
import io
import random
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class Blend:
    prob: float = 0.9
    alpha: float = 0.4

    def __call__(self, a, b, ya, yb):
        if random.random() >= self.prob:
            return a, ya
        lam = random.betavariate(self.alpha, self.alpha)
        return lam * a + (1 - lam) * b, lam * ya + (1 - lam) * yb


class Encoded(Dataset):
    """JPEG bytes in memory, as they come from the annotation service."""

    def __init__(self, count, classes, blend=None):
        self.classes = classes
        self.blend = blend
        self.blobs = []
        rs = np.random.RandomState(0)
        for i in range(count):
            img = rs.normal(40 + 30 * (i % classes), 25, (72, 72, 3)).clip(0, 255).astype("uint8")
            buf = io.BytesIO()
            Image.fromarray(img).save(buf, "JPEG")
            self.blobs.append(buf.getvalue())

    def __len__(self):
        return len(self.blobs)

    def decode(self, i):
        im = Image.open(io.BytesIO(self.blobs[i])).convert("RGB").resize((96, 96), Image.LANCZOS)
        im = im.filter(ImageFilter.GaussianBlur(1)).crop((16, 16, 80, 80))
        x = torch.from_numpy(np.asarray(im).copy()).permute(2, 0, 1).float() / 255
        return x, nn.functional.one_hot(torch.tensor(i % self.classes), self.classes).float()

    def __getitem__(self, i):
        x, y = self.decode(i)
        if self.blend is not None:
            x2, y2 = self.decode(random.randrange(len(self)))
            x, y = self.blend(x, x2, y, y2)
        return x, y


class Callback:
    def on_epoch_start(self, trainer, epoch):
        pass


class LinearRamp(Callback):
    def __init__(self, target, name, start, stop):
        self.target, self.name, self.start, self.stop = target, name, start, stop

    def on_epoch_start(self, trainer, epoch):
        frac = epoch / max(1, trainer.epochs - 1)
        setattr(self.target, self.name, self.start + (self.stop - self.start) * frac)


class Trainer:
    def __init__(self, model, loader, epochs, callbacks):
        self.model, self.loader, self.epochs, self.callbacks = model, loader, epochs, callbacks
        self.opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def run(self):
        for epoch in range(self.epochs):
            for cb in self.callbacks:
                cb.on_epoch_start(self, epoch)
            soft = total = 0
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                soft += int((y.max(1).values < 0.999).sum())
                total += len(y)
            print(f"epoch {epoch} loss {loss.item():.3f} soft labels {soft / total:.2f}", flush=True)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    full = Encoded(300, 4, Blend())
    train = Subset(full, range(0, 240))
    loader = DataLoader(train, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4))
    ramp = LinearRamp(loader.dataset.dataset.blend, "prob", 0.9, 0.0)
    Trainer(model, loader, 4, [ramp]).run()


if __name__ == "__main__":
    main()
