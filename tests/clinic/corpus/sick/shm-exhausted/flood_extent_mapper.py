# cause: shm-exhausted
# limits: shm=64M
"""Maps flood extent from pairs of radar scenes: trains on crops, checks on whole scenes."""
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

CROP, SCENE = 64, 256


def write_scene(folder, number):
    rng = np.random.default_rng(number)
    y, x = np.mgrid[:SCENE, :SCENE]
    river = np.abs(y - SCENE / 2 - 40 * np.sin(x / 50 + number)) < rng.uniform(10, 18)
    flood = np.abs(y - SCENE / 2 - 40 * np.sin(x / 50 + number)) < rng.uniform(24, 60)
    for name, water in (("before", river), ("after", flood)):
        speckle = rng.gamma(4.0, 12.0, (SCENE, SCENE)) * np.where(water, 0.35, 1.0)
        Image.fromarray(np.clip(speckle, 0, 255).astype(np.uint8)).save(folder / f"{number:03d}_{name}.png")
    Image.fromarray(((flood & ~river) * 255).astype(np.uint8)).save(folder / f"{number:03d}_mask.png")


class RandomCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image, mask):
        top, left = (int(v) for v in torch.randint(0, image.shape[-1] - self.size + 1, (2,)))
        window = (..., slice(top, top + self.size), slice(left, left + self.size))
        return image[window].clone(), mask[window].clone()


class FloodScenes(Dataset):
    """Layers: both backscatter images, their log ratio, and smoothed versions at two scales."""

    def __init__(self, folder, numbers, transform=None):
        self.folder, self.numbers, self.transform = Path(folder), np.asarray(numbers), transform

    def __len__(self):
        return len(self.numbers)

    def read(self, number, name):
        with Image.open(self.folder / f"{number:03d}_{name}.png") as picture:
            return torch.from_numpy(np.asarray(picture, dtype=np.float32) / 255.0)

    def __getitem__(self, index):
        number = int(self.numbers[index])
        before, after = self.read(number, "before"), self.read(number, "after")
        ratio = torch.log((after + 0.02) / (before + 0.02))
        layers = torch.stack([before, after, ratio])
        smooth = [F.avg_pool2d(layers, k, 1, k // 2) for k in (3, 7)]
        image, mask = torch.cat([layers, *smooth]), (self.read(number, "mask") > 0.5).float()
        return self.transform(image, mask) if self.transform else (image, mask)


def network(width=8):
    return nn.Sequential(
        nn.Conv2d(9, width, 3, padding=1), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=2, dilation=2), nn.ReLU(),
        nn.Conv2d(width, 1, 1),
    )


def overlap(logits, mask):
    wet = logits.squeeze(1) > 0
    truth = mask > 0.5
    return (wet & truth).sum().item(), (wet | truth).sum().item()


def train_epoch(model, loader, optimizer):
    model.train()
    losses = []
    for image, mask in loader:
        loss = F.binary_cross_entropy_with_logits(model(image).squeeze(1), mask, pos_weight=torch.tensor(2.0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.inference_mode()
def whole_scenes(model, loader):
    model.eval()
    both = either = 0
    for image, mask in loader:
        for part, truth in zip(image.split(4), mask.split(4)):
            hit, union = overlap(model(part), truth)
            both, either = both + hit, either + union
    return both / max(either, 1)


def main():
    torch.manual_seed(8)
    with tempfile.TemporaryDirectory(prefix="flood-") as folder:
        for number in range(130):
            write_scene(Path(folder), number)
        train = FloodScenes(folder, np.tile(np.arange(80), 3), RandomCrop(CROP))
        check = FloodScenes(folder, np.arange(80, 130))
        train_loader = DataLoader(train, batch_size=12, shuffle=True, num_workers=2, persistent_workers=True)
        check_loader = DataLoader(check, batch_size=10, num_workers=2)
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
        for epoch in range(4):
            start = time.perf_counter()
            loss = train_epoch(model, train_loader, optimizer)
            line = f"epoch {epoch}: loss {loss:.4f} ({time.perf_counter() - start:.1f} s)"
            print(line, flush=True)
            if epoch % 2 == 1:
                print(f"epoch {epoch}: scene overlap {whole_scenes(model, check_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
