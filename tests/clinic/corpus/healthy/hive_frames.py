"""Counting bees on hive frames: boxes of a whole batch travel as one tensor with an index column."""
import math
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Batch:
    images: torch.Tensor
    boxes: torch.Tensor

    def of(self, k):
        return self.boxes[self.boxes[:, 0] == k, 1:]

    @property
    def counts(self):
        return torch.bincount(self.boxes[:, 0].long(), minlength=len(self.images)).float()


class HiveFrames(Dataset):
    def __init__(self, frames, side, most):
        self.frames, self.side, self.most = frames, side, most
        axis = torch.arange(side, dtype=torch.float32)
        self.yy, self.xx = torch.meshgrid(axis, axis, indexing="ij")

    def __len__(self):
        return self.frames

    def __getitem__(self, i):
        n = 5 + i % (self.most - 5)
        boxes = torch.rand(n, 4)
        boxes[:, :2] *= self.side
        boxes[:, 2:] = 1 + 3 * boxes[:, 2:]
        canvas = torch.rand(self.side, self.side) * 0.2
        for x, y, a, b in boxes.tolist():
            turn = math.atan2(y, x)
            u = (self.xx - x) * math.cos(turn) + (self.yy - y) * math.sin(turn)
            v = (self.yy - y) * math.cos(turn) - (self.xx - x) * math.sin(turn)
            canvas[(u / a) ** 2 + (v / b) ** 2 < 1] = 0.9
        return canvas[None], boxes


class PackBoxes:
    def __call__(self, frames):
        tagged = []
        for k, (_, boxes) in enumerate(frames):
            tagged.append(torch.cat([torch.full((len(boxes), 1), float(k)), boxes], 1))
        return torch.stack([image for image, _ in frames]), torch.cat(tagged)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 1, 3))

    def forward(self, x):
        return nn.functional.softplus(self.net(x)).sum((1, 2, 3)) / 10


def main(frames=1280, epochs=2, batch=20):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = HiveFrames(frames // epochs, 72, 26)
    loader = DataLoader(data, batch, shuffle=True, num_workers=2, collate_fn=PackBoxes(), persistent_workers=True)
    net = Counter()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(epochs):
        began, error, biggest = time.time(), 0.0, 0.0
        for images, boxes in loader:
            sample = Batch(images, boxes)
            guess = net(sample.images)
            loss = nn.functional.smooth_l1_loss(guess, sample.counts)
            opt.zero_grad()
            loss.backward()
            opt.step()
            biggest = max(biggest, sample.of(0)[:, 2:].max().item())
            error += (guess - sample.counts).abs().mean().item()
            time.sleep(0.06)  # stands for the device
        print(f"epoch {epoch} mean error {error / len(loader):.2f} largest bee {biggest:.1f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
