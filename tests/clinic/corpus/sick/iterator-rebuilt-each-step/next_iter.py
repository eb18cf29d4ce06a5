# cause: iterator-rebuilt-each-step
"""A GAN loop that asks for one batch at a time."""

import torch
from torch.utils.data import DataLoader, Dataset


class Real(Dataset):
    def __init__(self):
        self.data = torch.randn(2000, 64)

    def __len__(self):
        return 2000

    def __getitem__(self, i):
        return self.data[i]


def main():
    loader = DataLoader(Real(), batch_size=32, shuffle=True, num_workers=2)
    critic = torch.nn.Linear(64, 1)
    opt = torch.optim.SGD(critic.parameters(), 1e-3)
    for step in range(60):
        real = next(iter(loader))
        loss = -critic(real).mean() + critic(torch.randn(32, 64)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
