# limits: shm=64M
"""Cars on a parking lot: lists of images and boxes, in a small container."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HEIGHT, WIDTH, CELLS = 480, 640, 12


class ParkingLot(Dataset):
    def __init__(self, frames):
        self.frames = frames
        self.asphalt = np.random.default_rng(0).integers(60, 90, (3, HEIGHT, WIDTH), dtype=np.uint8)

    def __len__(self):
        return self.frames

    def __getitem__(self, frame):
        rng = np.random.default_rng(frame)
        image = self.asphalt.copy()
        boxes = []
        for _ in range(int(rng.integers(2, 8))):
            x, y = int(rng.integers(0, WIDTH - 80)), int(rng.integers(0, HEIGHT - 50))
            image[:, y:y + 50, x:x + 80] = rng.integers(120, 255, (3, 1, 1))
            boxes.append((x, y, x + 80, y + 50))
        # stays uint8 until the training loop
        return torch.from_numpy(image), torch.tensor(boxes, dtype=torch.float32)


class ListCollate:
    def __call__(self, samples):
        images, boxes = zip(*samples)
        return list(images), list(boxes)


class CarDetector(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        layers, cin = [], 3
        for n in range(4):
            layers += [nn.Conv2d(cin, width * (1 + n // 2), 3, stride=2, padding=1), nn.ReLU()]
            cin = width * (1 + n // 2)
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(CELLS), nn.Conv2d(cin, 1, 1))

    def forward(self, images):
        batch = torch.stack(images).float().div_(255)
        return self.body(batch).squeeze(1)


def targets_for(boxes):
    grid = torch.zeros(len(boxes), CELLS, CELLS)
    for n, b in enumerate(boxes):
        centre = (b[:, :2] + b[:, 2:]) / 2
        grid[n, (centre[:, 1] / HEIGHT * CELLS).long(), (centre[:, 0] / WIDTH * CELLS).long()] = 1
    return grid


class Trainer:
    def __init__(self, model, rate):
        self.model = model
        self.optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        self.weight = torch.tensor(8.0)

    def step(self, images, boxes):
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(images), targets_for(boxes), pos_weight=self.weight)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.item()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            losses = []
            for images, boxes in loader:
                losses.append(self.step(images, boxes))
                if len(losses) % 20 == 0:
                    print(f"epoch {epoch} batch {len(losses)} loss {np.mean(losses[-20:]):.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(ParkingLot(480), batch_size=8, shuffle=True, num_workers=2, collate_fn=ListCollate(),
                        persistent_workers=True)
    Trainer(CarDetector(), 0.02).fit(loader, epochs=3)
