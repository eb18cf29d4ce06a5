# cause: sample-mutated-in-place
"""Single-stage box regression for parcels on a conveyor belt."""
import random
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

FRAME = (240, 320)      # height, width of the camera frames
INPUT = 128             # network input side
MAX_BOXES = 4


class BeltFrames(Dataset):
    def __init__(self, count, seed, augment):
        rs = np.random.default_rng(seed)
        self.frames, self.annotations = [], []
        for _ in range(count):
            small = rs.integers(30, 90, size=(24, 32, 3), dtype=np.uint8)
            boxes = []
            for _ in range(int(rs.integers(1, MAX_BOXES + 1))):
                w, h = rs.integers(30, 90, size=2)
                x, y = rs.integers(0, FRAME[1] - w), rs.integers(0, FRAME[0] - h)
                small[y // 10:(y + h) // 10, x // 10:(x + w) // 10] = rs.integers(150, 255, 3)
                boxes.append([x, y, x + w, y + h])
            self.frames.append(np.asarray(Image.fromarray(small).resize(FRAME[::-1], Image.NEAREST)))
            self.annotations.append({"boxes": np.array(boxes, np.float32), "weight": 1.0})
        self.augment = augment

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        return self.augment(Image.fromarray(self.frames[i]), self.annotations[i])


class Fit:
    """Resize the frame to the network input and bring the boxes along."""

    def __init__(self, side):
        self.side = side

    def __call__(self, image, target):
        sx, sy = self.side / image.width, self.side / image.height
        target["boxes"] *= np.array([sx, sy, sx, sy], np.float32)
        return image.resize((self.side, self.side), Image.BICUBIC), target


class Flip:
    def __call__(self, image, target):
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
            b = target["boxes"]
            target = dict(target, boxes=np.stack([image.width - b[:, 2], b[:, 1], image.width - b[:, 0], b[:, 3]], 1))
        return image, target


class Pipeline:
    def __init__(self, stages):
        self.stages = stages

    def __call__(self, image, target):
        for stage in self.stages:
            image, target = stage(image, target)
        pixels = torch.from_numpy(np.asarray(image, np.float32) / 255.0).permute(2, 0, 1)
        return pixels, torch.from_numpy(target["boxes"] / INPUT)


def collate(samples):
    images = torch.stack([s[0] for s in samples])
    boxes = torch.zeros(len(samples), MAX_BOXES, 4)
    present = torch.zeros(len(samples), MAX_BOXES)
    for row, (_, b) in enumerate(samples):
        boxes[row, :len(b)] = b
        present[row, :len(b)] = 1
    return images, boxes, present


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                                      nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(6), nn.Flatten())
        self.box = nn.Linear(48 * 36, MAX_BOXES * 4)
        self.obj = nn.Linear(48 * 36, MAX_BOXES)

    def forward(self, x):
        f = self.backbone(x)
        return self.box(f).view(-1, MAX_BOXES, 4), self.obj(f)


def main(epochs=6):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = BeltFrames(700, seed=40, augment=Pipeline([Fit(INPUT), Flip()]))
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True, collate_fn=collate)
    net = Detector()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for epoch in range(epochs):
        start, reg, area = time.time(), 0.0, 0.0
        for images, boxes, present in loader:
            pred, score = net(images)
            l1 = ((pred - boxes).abs().mean(-1) * present).sum() / present.sum()
            loss = l1 + nn.functional.binary_cross_entropy_with_logits(score, present)
            opt.zero_grad()
            loss.backward()
            opt.step()
            reg += l1.item()
            side = boxes[..., 2:] - boxes[..., :2]
            area += (side.prod(-1).sum() / present.sum()).item()
        n = len(loader)
        print(f"epoch {epoch}: l1 {reg / n:.4f} mean box area {area / n:.4f} {time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    main()
