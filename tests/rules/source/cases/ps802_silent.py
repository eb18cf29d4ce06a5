# ruff: noqa
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        try:
            return Image.open(self.paths[index])
        except OSError:
            return None


class Raising(Images):
    def __getitem__(self, index):
        try:
            return Image.open(self.paths[index])
        except OSError as error:
            raise ValueError(index) from error


class Substituting(Images):
    def __getitem__(self, index):
        try:
            return Image.open(self.paths[index])
        except OSError:
            return self[index + 1]


class Unseen(Images):
    pass


def keep_good(batch):
    return [sample for sample in batch if sample is not None]


loader = DataLoader(Images(["a"]), num_workers=2, collate_fn=keep_good)
DataLoader(Raising(["a"]), num_workers=2)
DataLoader(Substituting(["a"]), num_workers=2)
