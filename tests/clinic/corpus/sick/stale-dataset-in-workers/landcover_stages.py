# cause: stale-dataset-in-workers
# also: workers-not-worth-it
# arguments: --epochs 3
"""Land cover segmentation with crops and distortions that get harder in the course of the training."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

CLASSES = 4


def make_scene(seed, size=320, bands=4):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:size, :size] / size
    height = sum(np.sin(2 * np.pi * (a * xx + b * yy) + c) for a, b, c in rng.uniform(0.5, 4, (6, 3)))
    label = np.digitize(height, np.quantile(height, [0.25, 0.5, 0.75])).astype(np.int64)
    signature = np.random.default_rng(5).uniform(0.1, 0.9, (CLASSES, bands))
    image = signature[label] + rng.normal(0, 0.15, (size, size, bands))
    return image.astype(np.float32), label


class Scene(Dataset):
    STAGES = {"easy": (0.0, 1), "medium": (0.15, 3), "hard": (0.35, 5)}

    def __init__(self, seed, crops, crop):
        self.image, self.label = make_scene(seed)
        self.crops, self.crop = crops, crop
        self.haze, self.blur = self.STAGES["easy"]

    def set_stage(self, stage):
        self.haze, self.blur = self.STAGES[stage]

    def __len__(self):
        return self.crops

    def __getitem__(self, item):
        limit = self.image.shape[0] - self.crop
        y, x = np.random.randint(0, limit, 2)
        image = self.image[y : y + self.crop, x : x + self.crop]
        label = self.label[y : y + self.crop, x : x + self.crop]
        quarter = np.random.randint(4)
        image, label = np.rot90(image, quarter), np.rot90(label, quarter)
        if self.blur > 1:
            reach = self.blur // 2
            image = sum(np.roll(image, (i, j), (0, 1)) for i in range(-reach, reach + 1) for j in range(-reach, reach + 1))
            image = image / self.blur ** 2
        image = image * (1 - self.haze) + self.haze * np.random.uniform(0.5, 1.0)
        ranked = np.sort(image.reshape(-1, image.shape[2]), axis=0)
        low, high = ranked[len(ranked) // 50], ranked[-len(ranked) // 50]
        image = np.clip((image - low) / (high - low), 0, 1)
        image = np.concatenate([image, (image[..., 3:] - image[..., :1]) / (image[..., 3:] + image[..., :1] + 0.1)], -1)
        return torch.from_numpy(image.transpose(2, 0, 1).copy()).float(), torch.from_numpy(label.copy())


class Trainer:
    def __init__(self, args):
        self.args = args
        self.scenes = [Scene(s, args.crops, args.crop) for s in range(4)]
        self.loader = DataLoader(
            ConcatDataset(self.scenes),
            batch_size=args.batch_size,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=args.workers > 0,
        )
        self.net = nn.Sequential(
            nn.Conv2d(5, 10, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(10, 10, 3, padding=1), nn.ReLU(),
            nn.Upsample(scale_factor=2), nn.Conv2d(10, CLASSES, 1),
        )
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=args.lr)
        self.history = []

    def before_epoch(self, epoch):
        stage = ["easy", "medium", "hard"][min(3 * epoch // self.args.epochs, 2)]
        for scene in self.scenes:
            scene.set_stage(stage)
        return stage

    def run_epoch(self):
        hits = pixels = 0
        for image, label in self.loader:
            logits = self.net(image)
            loss = nn.functional.cross_entropy(logits, label)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            hits += (logits.argmax(1) == label).sum().item()
            pixels += label.numel()
        return hits / pixels

    def fit(self):
        for epoch in range(self.args.epochs):
            stage = self.before_epoch(epoch)
            begin = time.perf_counter()
            score = self.run_epoch()
            self.history.append((stage, score))
            print(f"epoch {epoch} stage {stage}: pixel accuracy {score:.3f} in {time.perf_counter() - begin:.1f}s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--crops", type=int, default=100)
    parser.add_argument("--crop", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    Trainer(args).fit()
