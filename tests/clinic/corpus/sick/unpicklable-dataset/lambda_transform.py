# cause: unpicklable-dataset
"""Tabular training; the start method is spawn because another library asked for it."""

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset


class Table(Dataset):
    def __init__(self, rows, transform=None):
        self.rows = torch.arange(rows * 8, dtype=torch.float32).view(rows, 8)
        self.transform = transform

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return self.transform(row) if self.transform else row


def build():
    scale = 0.001
    return Table(256, transform=lambda row: row * scale - 1)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    loader = DataLoader(build(), batch_size=32, shuffle=True, num_workers=2)
    model = torch.nn.Linear(8, 1)
    opt = torch.optim.SGD(model.parameters(), 1e-3)
    for epoch in range(2):
        for batch in loader:
            loss = model(batch).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())
