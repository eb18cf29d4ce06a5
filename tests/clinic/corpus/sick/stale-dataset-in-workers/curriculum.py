# cause: stale-dataset-in-workers
"""A curriculum that gets harder with every epoch."""

import torch
from torch.utils.data import DataLoader, Dataset


class Curriculum(Dataset):
    difficulty = 0

    def __len__(self):
        return 120

    def __getitem__(self, i):
        return torch.full((6,), float(i)) * (1 + self.difficulty)


def main():
    data = Curriculum()
    loader = DataLoader(data, batch_size=12, num_workers=2, persistent_workers=True)
    model = torch.nn.Linear(6, 1)
    for epoch in range(4):
        data.difficulty = epoch
        for batch in loader:
            model(batch).mean().backward()
        print("epoch", epoch, "difficulty", data.difficulty)


if __name__ == "__main__":
    main()
