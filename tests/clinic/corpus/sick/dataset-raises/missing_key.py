# cause: dataset-raises
"""A record lacks a field."""

import torch
from torch.utils.data import DataLoader, Dataset

RECORDS = [{"id": i, "label": i % 3, "features": [float(i)] * 6} for i in range(200)]
del RECORDS[113]["label"]


class Records(Dataset):
    def __len__(self):
        return len(RECORDS)

    def __getitem__(self, index):
        record = RECORDS[index]
        return torch.tensor(record["features"]), record["label"]


def main():
    torch.manual_seed(0)
    loader = DataLoader(Records(), batch_size=16, shuffle=True, num_workers=2)
    model = torch.nn.Linear(6, 3)
    for epoch in range(2):
        for x, y in loader:
            torch.nn.functional.cross_entropy(model(x), y).backward()
        print("epoch", epoch)


if __name__ == "__main__":
    main()
