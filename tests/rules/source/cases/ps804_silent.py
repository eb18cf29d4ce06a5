# ruff: noqa
from torch.utils.data import DataLoader, Dataset


class Corrupt(Exception):
    pass


class Checked(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        raise Corrupt(index)


class Alone(Dataset):
    def __getitem__(self, index):
        class Local(Exception):
            pass

        raise Local(index)


loader = DataLoader(Checked(), num_workers=2)
alone = DataLoader(Alone(), num_workers=0)
