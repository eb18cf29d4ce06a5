# cause: class-not-importable, unpicklable-dataset
"""The dataset class is made by a factory."""

import torch
from torch.utils.data import DataLoader, Dataset


def make_dataset(width):
    class Windows(Dataset):
        def __init__(self):
            self.series = torch.arange(2000, dtype=torch.float32).sin()

        def __len__(self):
            return len(self.series) - width

        def __getitem__(self, i):
            return self.series[i : i + width].clone()

    return Windows()


if __name__ == "__main__":
    loader = DataLoader(make_dataset(16), batch_size=64, num_workers=2, multiprocessing_context="spawn")
    for batch in loader:
        batch.mean()
    print("done")
