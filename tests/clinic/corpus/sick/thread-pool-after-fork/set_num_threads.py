# cause: thread-pool-after-fork
"""Normalisation statistics are computed with all cores first; the transform asks for them too."""

import torch
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    def __init__(self, count):
        torch.set_num_threads(2)
        bank = torch.randn(2000, 2000)
        self.basis = (bank @ bank.T).exp().sum(0)[:512].clamp(max=10)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        torch.set_num_threads(2)
        signal = torch.full((1500, 512), index / 100.0) * self.basis
        return signal.exp().mean(0)


def main():
    loader = DataLoader(Spectra(64), batch_size=8, num_workers=2)
    model = torch.nn.Linear(512, 4)
    for epoch in range(2):
        for batch in loader:
            model(batch).sum().backward()
        print("epoch", epoch)


if __name__ == "__main__":
    main()
