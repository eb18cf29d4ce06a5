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


class Relabelled(Dataset):
    def __init__(self, files, labels):
        self.files = files
        self.labels = [label if label else -1 for label in labels]

    def relabel(self, guesses):
        for place, guess in guesses:
            self.labels[place] = guess

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.files[index], self.labels[index]


pool = Relabelled(list(range(10)), [0, 1] * 5)
rounds = DataLoader(pool, num_workers=2, persistent_workers=True)
for _ in range(3):
    for batch in rounds:
        print(batch)
    pool.relabel([(3, 1)])  # finds PS303
