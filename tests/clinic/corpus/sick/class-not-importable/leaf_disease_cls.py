# cause: class-not-importable
# also: slow-worker-start
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

CLASSES = ["healthy", "rust", "blight", "mildew"]


def paint_leaves(folder, count):
    rng = np.random.default_rng(7)
    for i in range(count):
        label = i % len(CLASSES)
        img = np.zeros((96, 96, 3), np.uint8)
        img[..., 1] = 90 + rng.integers(0, 60)
        img += rng.integers(0, 20, img.shape, dtype=np.uint8)
        for _ in range(label * 6):
            y, x = rng.integers(0, 88, 2)
            img[y:y + 8, x:x + 8] = [(0, 0, 0), (180, 90, 20), (60, 40, 20), (220, 220, 220)][label]
        Image.fromarray(img).save(os.path.join(folder, f"{CLASSES[label]}_{i:04d}.png"))


class LeafFolder(Dataset):
    def __init__(self, folder, names, transform=None):
        self.folder = folder
        self.names = names
        self.transform = transform

    def __len__(self):
        return len(self.names)

    def __getitem__(self, idx):
        name = self.names[idx]
        img = Image.open(os.path.join(self.folder, name)).convert("RGB")
        if self.transform is not None:
            img = self.transform(img)
        return img, CLASSES.index(name.split("_")[0])


class ToTensor:
    def __call__(self, img):
        return torch.from_numpy(np.array(img)).permute(2, 0, 1).float() / 255


class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, x):
        for step in self.steps:
            x = step(x)
        return x


class LeafNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.c1 = nn.Conv2d(3, width, 3, stride=2)
        self.c2 = nn.Conv2d(width, width * 2, 3, stride=2)
        self.fc = nn.Linear(width * 2, len(CLASSES))

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(x))
        return self.fc(x.mean((2, 3)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=480)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    mp.set_start_method("spawn")  # same as on the GPU box
    torch.manual_seed(0)

    # augmentation experiment, 12 March: spots should survive a random square crop
    class RandomSquareCrop:
        def __init__(self, low=0.6):
            self.low = low

        def __call__(self, img):
            w, h = img.size
            side = int(min(w, h) * (self.low + (1 - self.low) * torch.rand(1).item()))
            x = int(torch.randint(0, w - side + 1, (1,)))
            y = int(torch.randint(0, h - side + 1, (1,)))
            return img.crop((x, y, x + side, y + side)).resize((w, h), Image.BILINEAR)

    tmp = tempfile.TemporaryDirectory()
    paint_leaves(tmp.name, args.images)
    files = sorted(os.listdir(tmp.name))
    order = torch.randperm(len(files)).tolist()
    cut = int(0.8 * len(files))
    train_set = LeafFolder(tmp.name, [files[i] for i in order[:cut]], Compose([RandomSquareCrop(), ToTensor()]))
    val_set = LeafFolder(tmp.name, [files[i] for i in order[cut:]], ToTensor())
    train_loader = DataLoader(train_set, batch_size=args.batch, shuffle=True, num_workers=args.workers,
                              persistent_workers=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=args.batch)

    net = LeafNet()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs)
    for epoch in range(args.epochs):
        running = 0.0
        for img, target in train_loader:
            loss = F.cross_entropy(net(img), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
        sched.step()
        with torch.no_grad():
            ok = sum((net(img).argmax(1) == target).sum().item() for img, target in val_loader)
        print(f"[{epoch + 1}/{args.epochs}] loss={running / len(train_loader):.3f} val={ok / len(val_set):.3f}", flush=True)
    tmp.cleanup()
