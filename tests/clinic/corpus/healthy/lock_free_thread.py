"""A thread runs beside the training, and its lock is never touched by workers."""

import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Monitor:
    def __init__(self):
        self.lock, self.ticks = threading.Lock(), 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            with self.lock:
                self.ticks += 1
            time.sleep(0.05)


class Items(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, i):
        return torch.randn(12), i % 2


def main():
    monitor = Monitor()
    loader = DataLoader(Items(), batch_size=20, shuffle=True, num_workers=2)
    model = torch.nn.Linear(12, 2)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item(), monitor.ticks)


if __name__ == "__main__":
    main()
