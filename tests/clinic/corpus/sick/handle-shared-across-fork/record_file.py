# cause: handle-shared-across-fork
"""Fixed-length records read by seek and read from one handle."""

import os
import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

WIDTH = 2048


class Waves(Dataset):
    def __init__(self, path):
        self.handle = open(path, "rb", buffering=0)
        self.count = os.path.getsize(path) // (WIDTH * 4)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        self.handle.seek(i * WIDTH * 4)
        wave = np.frombuffer(self.handle.read(WIDTH * 4), dtype=np.float32)
        return torch.from_numpy(wave.copy())


def main():
    folder = tempfile.mkdtemp(prefix="waves")
    path = os.path.join(folder, "waves.f32")
    np.repeat(np.arange(4000, dtype=np.float32), WIDTH).tofile(path)
    loader = DataLoader(Waves(path), batch_size=50, shuffle=True, num_workers=4)
    model = torch.nn.Linear(WIDTH, 1)
    for epoch in range(3):
        for batch in loader:
            model(batch).mean().backward()
        print(epoch)


if __name__ == "__main__":
    main()
