# ruff: noqa
from torch.utils.data import DataLoader, Dataset


class Staged(Dataset):
    def __init__(self):
        self.epoch = 0
        self.size = 32

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index + self.epoch * self.size


dataset = Staged()
loader = DataLoader(dataset, num_workers=2, persistent_workers=True)
for epoch in range(3):
    dataset.set_epoch(epoch)  # finds PS303
    loader.dataset.size = 64  # finds PS303
    for batch in loader:
        print(batch)
