"""Retina photograph grading. A thread keeps the decode statistics fresh on disk, for the dashboard."""
import argparse
import io
import json
import os
import tempfile
import threading
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class DecodeBoard:
    """Counts per grade and decode times, one file per process; the dashboard adds them up."""

    def __init__(self, folder):
        self.folder = folder
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self):
        self.path = os.path.join(self.folder, f"board-{os.getpid()}.json")
        self.lock = threading.Lock()
        self.count, self.seconds = {}, 0.0

    def add(self, grade, seconds):
        with self.lock:
            self.count[grade] = self.count.get(grade, 0) + 1
            self.seconds += seconds
            full = sum(self.count.values()) % 100 == 0
        if full:
            self.publish()

    def publish(self, pause=0.0):
        with self.lock, open(self.path, "w") as f:
            json.dump({"count": self.count, "seconds": self.seconds, "at": time.time()}, f)
            f.flush()
            time.sleep(pause)

    def publish_forever(self):
        def run():
            while True:
                self.publish(pause=0.05)
                time.sleep(0.005)
        threading.Thread(target=run, name="board", daemon=True).start()


class Fundus(Dataset):
    def __init__(self, n, board, side=192):
        rng = np.random.default_rng(9)
        yy, xx = np.mgrid[:side, :side] - side / 2
        disc = (np.hypot(yy, xx) < side * 0.45)[..., None]
        self.blobs, self.grades, self.board = [], [], board
        for i in range(n):
            grade = i % 4
            img = disc * np.array([150, 70, 30]) + rng.integers(0, 25, (side, side, 3))
            for _ in range(grade * 5):
                y, x = rng.integers(side // 4, 3 * side // 4, 2)
                img[y:y + 6, x:x + 6] = (230, 210, 90)
            buf = io.BytesIO()
            Image.fromarray(img.clip(0, 255).astype(np.uint8)).save(buf, "JPEG", quality=88)
            self.blobs.append(buf.getvalue())
            self.grades.append(grade)

    def __len__(self):
        return len(self.blobs)

    def __getitem__(self, i):
        t0 = time.perf_counter()
        img = Image.open(io.BytesIO(self.blobs[i])).convert("RGB")
        turn = float(torch.rand(()) * 360)
        img = img.rotate(turn, Image.BILINEAR).resize((80, 80), Image.BILINEAR)
        x = torch.from_numpy(np.asarray(img, dtype=np.float32).transpose(2, 0, 1) / 255)
        self.board.add(self.grades[i], time.perf_counter() - t0)
        return {"photo": x, "grade": self.grades[i]}


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU(),
                         nn.Conv2d(b, b, 3, 1, 1), nn.BatchNorm2d(b), nn.ReLU())


class GradeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(block(3, 16), block(16, 32), block(32, 64))
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        return self.head(self.trunk(x).amax((2, 3)))


def run_epoch(net, loader, opt=None):
    losses, right, n = [], 0, 0
    for batch in loader:
        logit = net(batch["photo"])
        loss = nn.functional.cross_entropy(logit, batch["grade"])
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        losses.append(loss.item())
        right += (logit.argmax(1) == batch["grade"]).sum().item()
        n += len(logit)
    return np.mean(losses), right / n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--photos", type=int, default=400)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--batch-size", type=int, default=16)
    a = p.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)                      # shared node

    board = DecodeBoard(tempfile.mkdtemp())
    data = Fundus(a.photos, board)
    board.publish_forever()
    cut = int(a.photos * 0.85)
    train_loader = DataLoader(Subset(data, range(cut)), a.batch_size, shuffle=True, num_workers=a.workers,
                              persistent_workers=a.workers > 0)
    test_loader = DataLoader(Subset(data, range(cut, a.photos)), a.batch_size, num_workers=a.workers,
                             persistent_workers=a.workers > 0)
    net = GradeNet()
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=1e-4)
    for epoch in range(a.epochs):
        t0 = time.time()
        net.train()
        loss, acc = run_epoch(net, train_loader, opt)
        net.eval()
        with torch.no_grad():
            vloss, vacc = run_epoch(net, test_loader)
        print(f"{epoch}: train {loss:.3f}/{acc:.2f}  test {vloss:.3f}/{vacc:.2f}  {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
