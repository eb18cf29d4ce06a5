# ruff: noqa
from torch.utils.data import DataLoader, Dataset


class Odd(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index == 0:
            return {"parts": list(part for part in range(3))}
        return index, open("x").read(), max((1, 2), key=lambda each: -each)


class UsedUp(Odd):
    def __getitem__(self, index):
        return (part for part in range(3))


def collate(batch):
    return [list(sample) for sample in batch]


loader = DataLoader(Odd(), num_workers=2)
other = DataLoader(UsedUp(), num_workers=2, collate_fn=collate)
