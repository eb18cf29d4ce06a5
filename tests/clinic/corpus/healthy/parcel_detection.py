"""Box regression for parcels seen from above; boxes follow the resized frame."""
import copy
import random
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

H, W, INPUT, MAX_BOXES = 240, 320, 128, 4


class ParcelFrames(Dataset):
    def __init__(self, count, seed, stages):
        rs = np.random.default_rng(seed)
        self.frames, self.annotations, self.stages = [], [], stages
        for _ in range(count):
            small = rs.integers(30, 90, size=(24, 32, 3), dtype=np.uint8)
            boxes = []
            for _ in range(int(rs.integers(1, MAX_BOXES + 1))):
                w, h = rs.integers(30, 90, size=2)
                x, y = rs.integers(0, W - w), rs.integers(0, H - h)
                small[y // 10:(y + h) // 10, x // 10:(x + w) // 10] = rs.integers(150, 255, 3)
                boxes.append([x, y, x + w, y + h])
            self.frames.append(np.asarray(Image.fromarray(small).resize((W, H), Image.NEAREST)))
            self.annotations.append({"boxes": np.array(boxes, np.float32)})

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        image = Image.fromarray(self.frames[i])
        target = copy.deepcopy(self.annotations[i])
        for stage in self.stages:
            image, target = stage(image, target)
        pixels = torch.from_numpy(np.asarray(image, np.float32) / 255.0).permute(2, 0, 1)
        return pixels, torch.from_numpy(target["boxes"]).div_(INPUT)


class FitToInput:
    def __call__(self, image, target):
        sx, sy = INPUT / image.width, INPUT / image.height
        target["boxes"] *= np.array([sx, sy, sx, sy], np.float32)
        return image.resize((INPUT, INPUT), Image.BICUBIC), target


class Mirror:
    def __call__(self, image, target):
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
            b = target["boxes"]
            b[:, [0, 2]] = image.width - b[:, [2, 0]]
        return image, target


class Brightness:
    def __call__(self, image, target):
        gain = random.uniform(0.7, 1.3)
        return image.point(lambda v: min(255, int(v * gain))), target


def collate(samples):
    boxes = torch.zeros(len(samples), MAX_BOXES, 4)
    present = torch.zeros(len(samples), MAX_BOXES)
    for row, (_, b) in enumerate(samples):
        boxes[row, :len(b)] = b
        present[row, :len(b)] = 1
    return torch.stack([s[0] for s in samples]), boxes, present


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 48, 3, 1, 1), nn.ReLU(),
                                      nn.Conv2d(48, 48, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(6), nn.Flatten())
        self.box = nn.Linear(48 * 36, MAX_BOXES * 4)
        self.obj = nn.Linear(48 * 36, MAX_BOXES)

    def forward(self, x):
        f = self.backbone(x)
        return self.box(f).view(-1, MAX_BOXES, 4), self.obj(f)


def main(epochs=4):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = ParcelFrames(700, seed=41, stages=[FitToInput(), Mirror(), Brightness()])
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True, collate_fn=collate)
    net = Detector()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for epoch in range(epochs):
        start, reg, area, waited = time.time(), 0.0, 0.0, 0.0
        mark = time.time()
        for images, boxes, present in loader:
            waited += time.time() - mark
            pred, score = net(images)
            l1 = ((pred - boxes).abs().mean(-1) * present).sum() / present.sum()
            loss = l1 + nn.functional.binary_cross_entropy_with_logits(score, present)
            opt.zero_grad()
            loss.backward()
            opt.step()
            reg += l1.item()
            side = boxes[..., 2:] - boxes[..., :2]
            area += (side.prod(-1).sum() / present.sum()).item()
            mark = time.time()
        n = len(loader)
        print(f"epoch {epoch}: l1 {reg / n:.4f} mean box area {area / n:.4f} {time.time() - start:.1f}s "
              f"data {waited:.2f}s", flush=True)


if __name__ == "__main__":
    main()
