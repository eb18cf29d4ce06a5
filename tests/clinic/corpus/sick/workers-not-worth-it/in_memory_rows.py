# cause: workers-not-worth-it
"""A table in memory, four rows at a time, with workers because everybody does."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(12000, 6), torch.randint(0, 2, (12000,)))
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=4)
    weight = torch.zeros(6)
    for epoch in range(2):
        for x, y in loader:
            weight += (x * (y.float() - 0.5).unsqueeze(1)).mean(0)
        print(epoch, weight.norm().item())


if __name__ == "__main__":
    main()
