"""Fixed-length records from one descriptor, by positioned reads."""

import os
import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

WIDTH = 2048


class Waves(Dataset):
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY)
        self.count = os.path.getsize(path) // (WIDTH * 4)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        raw = os.pread(self.fd, WIDTH * 4, i * WIDTH * 4)
        return torch.from_numpy(np.frombuffer(raw, dtype=np.float32).copy())


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "waves.f32")
        np.repeat(np.arange(2000, dtype=np.float32), WIDTH).tofile(path)
        loader = DataLoader(Waves(path), batch_size=50, shuffle=True, num_workers=2)
        model = torch.nn.Linear(WIDTH, 1)
        for epoch in range(2):
            for batch in loader:
                model(batch).mean().backward()
            print(epoch)


if __name__ == "__main__":
    main()
