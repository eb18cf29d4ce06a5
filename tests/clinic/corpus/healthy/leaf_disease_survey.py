"""Leaf disease classification from a drone survey, with seeded augmentation."""
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

SIDE, CLASSES = 48, 4


class Warp:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, leaf):
        shift = self.rng.integers(-6, 7, 2)
        return np.roll(leaf, tuple(shift), axis=(0, 1))


class Sunlight:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, leaf):
        leaf *= self.rng.uniform(0.7, 1.3)
        leaf += self.rng.normal(0, 4, leaf.shape).astype(np.float32)
        return leaf


class Pipeline:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, leaf):
        for step in self.steps:
            leaf = step(leaf)
        return leaf

    def reseed(self, seed):
        for k, step in enumerate(self.steps):
            step.rng = np.random.default_rng((seed, k))


class LeafSurvey(Dataset):
    def __init__(self, count, seed, pipeline=None):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, CLASSES, count)
        self.leaves = rng.integers(60, 120, (count, SIDE, SIDE, 3), dtype=np.uint8)
        for leaf, label in zip(self.leaves, self.labels):
            for y, x in rng.integers(4, SIDE - 8, (3 * label + 1, 2)):
                leaf[y:y + 4, x:x + 4] = (190, 150, 40)
        self.pipeline = pipeline

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        leaf = self.leaves[index].astype(np.float32)
        if self.pipeline is not None:
            leaf = self.pipeline(leaf)
        spectrum = np.fft.rfft2(leaf, axes=(0, 1))
        spectrum[0, 0] *= 0.5
        leaf = np.fft.irfft2(spectrum, axes=(0, 1)).astype(np.float32)
        leaf = (leaf - leaf.mean()) / (leaf.std() + 1)
        return torch.from_numpy(leaf.transpose(2, 0, 1).copy()), int(self.labels[index])


def prepare_worker(worker_id):
    info = get_worker_info()
    info.dataset.pipeline.reseed(info.seed)


def build_model():
    return nn.Sequential(nn.Conv2d(3, 20, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 32, 3, padding=1), nn.ReLU(),
                         nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(128, CLASSES))


@torch.no_grad()
def accuracy(model, loader):
    return sum((model(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    train = DataLoader(LeafSurvey(1280, 1, Pipeline(Warp(0), Sunlight(1))), batch_size=32, shuffle=True, num_workers=2,
                       persistent_workers=True, worker_init_fn=prepare_worker)
    check = DataLoader(LeafSurvey(128, 2), batch_size=64)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(4):
        start = time.perf_counter()
        for leaves, labels in train:
            loss = nn.functional.cross_entropy(model(leaves), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rate = len(train.dataset) / (time.perf_counter() - start)
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy(model, check):.3f}, {rate:.0f} leaves/s", flush=True)


if __name__ == "__main__":
    main()
