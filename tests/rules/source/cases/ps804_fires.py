# ruff: noqa
from torch.utils.data import DataLoader, Dataset


class Checked(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        class Corrupt(Exception):
            pass

        raise Corrupt(index)  # finds PS804


loader = DataLoader(Checked(), num_workers=2)
