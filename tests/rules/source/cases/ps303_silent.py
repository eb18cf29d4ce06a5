# ruff: noqa
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Staged(Dataset):
    def __init__(self):
        self.epoch = torch.zeros(1).share_memory_()
        self.plain = 0
        self.name = ""

    def set_epoch(self, epoch):
        self.epoch[0] = epoch

    def set_plain(self, epoch):
        self.plain = epoch

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index + self.epoch.item() + self.plain


dataset = Staged()
sampler = DistributedSampler(dataset)
kept = DataLoader(dataset, num_workers=2, persistent_workers=True, sampler=sampler)
dataset.set_plain(3)
for epoch in range(3):
    kept.sampler.set_epoch(epoch)
    sampler.set_epoch(epoch)
    dataset.set_epoch(epoch)
    dataset.name = "an attribute that samples do not depend on"
    for batch in kept:
        print(batch)

other = Staged()
fresh = DataLoader(other, num_workers=2)
for epoch in range(3):
    other.set_plain(epoch)
    for batch in fresh:
        print(batch)


class Shared(Dataset):
    def __init__(self, labels):
        self.labels = labels  # a tensor, which may be shared
        self.seen = [0] * 10

    def relabel(self, place, label):
        self.labels[place] = label
        self.seen[place] = 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.labels[index]


shared = Shared(torch.zeros(10).share_memory_())
rounds = DataLoader(shared, num_workers=2, persistent_workers=True)
for _ in range(3):
    for batch in rounds:
        print(batch)
    shared.relabel(3, 1)
