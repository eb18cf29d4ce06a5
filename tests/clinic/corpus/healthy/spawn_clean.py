"""Everything at module level, guarded, under spawn."""

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, i):
        return torch.tensor([float(i)]), torch.tensor([float(i * i)])


def main():
    loader = DataLoader(
        Squares(), batch_size=20, num_workers=2, multiprocessing_context="spawn", persistent_workers=True
    )
    model = torch.nn.Linear(1, 1)
    opt = torch.optim.SGD(model.parameters(), 1e-6)
    for epoch in range(3):
        for x, y in loader:
            loss = (model(x) - y).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
