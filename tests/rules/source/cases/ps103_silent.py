# ruff: noqa
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index


if __name__ == "__main__":

    class Forked(Images):
        pass

    DataLoader(Images(), num_workers=2, multiprocessing_context="spawn")
    DataLoader(Forked(), num_workers=2)
