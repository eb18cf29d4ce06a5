# cause: rng-repeated
"""Grades diabetic retinopathy on fundus photographs; geometric and photometric augmentation, small CNN."""
import time

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

SEED = 2024
SIDE = 56
GRADES = 4


class Step:
    """One augmentation; reproducible on its own."""

    def __init__(self, seed, probability=1.0):
        self.rng = np.random.default_rng(seed)
        self.probability = probability

    def __call__(self, image):
        return self.apply(image) if self.rng.random() < self.probability else image

    def apply(self, image):
        raise NotImplementedError


class Rotate(Step):
    def apply(self, image):
        angle = float(self.rng.uniform(-25, 25))
        return np.asarray(Image.fromarray(image).rotate(angle, Image.BILINEAR))


class Crop(Step):
    def apply(self, image):
        margin = image.shape[0] - SIDE
        y, x = self.rng.integers(0, margin + 1, 2)
        return image[y:y + SIDE, x:x + SIDE]


class Exposure(Step):
    def apply(self, image):
        gain = self.rng.uniform(0.7, 1.3)
        return np.clip(image * gain, 0, 255).astype(np.uint8)


class Vignette(Step):
    def apply(self, image):
        cy, cx = self.rng.uniform(0.4, 0.6, 2) * image.shape[0]
        yy, xx = np.ogrid[:image.shape[0], :image.shape[1]]
        fall = np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / (2 * (0.55 * image.shape[0]) ** 2))
        return (image * fall[..., None]).astype(np.uint8)


class Chain:
    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self, image):
        for step in self.steps:
            image = step(image)
        return image


class Either(Step):
    def __init__(self, seed, *options):
        super().__init__(seed)
        self.options = options

    def apply(self, image):
        return self.options[self.rng.integers(len(self.options))](image)


def training_augmentation(seed=SEED):
    return Chain(Chain(Rotate(seed, 0.9), Crop(seed + 1)), Either(seed + 2, Exposure(seed + 3), Vignette(seed + 4)))


def centre_crop(image):
    margin = (image.shape[0] - SIDE) // 2
    return image[margin:margin + SIDE, margin:margin + SIDE]


class Fundus(Dataset):
    def __init__(self, count, seed, augment):
        rng = np.random.default_rng(seed)
        self.grades = rng.choice(GRADES, count, p=[0.55, 0.25, 0.15, 0.05])
        self.images = np.zeros((count, SIDE + 12, SIDE + 12, 3), dtype=np.uint8)
        yy, xx = np.mgrid[0:SIDE + 12, 0:SIDE + 12]
        disc = (yy - 34) ** 2 + (xx - 34) ** 2 < 30 ** 2
        for image, grade in zip(self.images, self.grades):
            image[disc] = (170, 80, 40)
            for _ in range(4 * grade):
                y, x = rng.integers(14, 54, 2)
                image[y - 2:y + 2, x - 2:x + 2] = (110, 10, 10)
        self.augment = augment

    def __len__(self):
        return len(self.grades)

    def __getitem__(self, index):
        image = self.augment(self.images[index])
        pixels = image.astype(np.float32) / 255
        pixels = (pixels - pixels.mean()) / (pixels.std() + 1e-3)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))), int(self.grades[index])


def balanced(dataset):
    weight = 1.0 / np.bincount(dataset.grades, minlength=GRADES).clip(1)
    return WeightedRandomSampler(torch.from_numpy(weight[dataset.grades]), len(dataset))


def kappa(confusion):
    n = confusion.sum()
    distance = np.subtract.outer(np.arange(GRADES), np.arange(GRADES)) ** 2
    expected = np.outer(confusion.sum(1), confusion.sum(0)) / n
    return 1 - (distance * confusion).sum() / (distance * expected).sum()


def main():
    torch.manual_seed(SEED)
    np.random.seed(SEED)
    torch.set_num_threads(1)
    train_set, val_set = Fundus(1280, 1, training_augmentation()), Fundus(256, 2, centre_crop)
    train = DataLoader(train_set, batch_size=32, sampler=balanced(train_set), num_workers=2, persistent_workers=True)
    val = DataLoader(val_set, batch_size=64)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(3),
                          nn.Flatten(), nn.Dropout(0.2), nn.Linear(24 * 9, GRADES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    best = -1.0
    for epoch in range(4):
        model.train()
        start = time.perf_counter()
        for images, grades in train:
            loss = nn.functional.cross_entropy(model(images), grades, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seconds = time.perf_counter() - start
        model.eval()
        confusion = np.zeros((GRADES, GRADES))
        with torch.no_grad():
            for images, grades in val:
                np.add.at(confusion, (grades.numpy(), model(images).argmax(1).numpy()), 1)
        best = max(best, kappa(confusion))
        print(f"epoch {epoch}: loss {loss.item():.3f}, kappa {kappa(confusion):.3f} (best {best:.3f}), {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
