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
            return None  # finds PS802


class Quiet(Images):
    def __getitem__(self, index):
        try:
            return Image.open(self.paths[index])
        except OSError as error:  # finds PS802
            print(error)


loader = DataLoader(Images(["a"]), num_workers=2)
other = DataLoader(Quiet(["a"]), num_workers=2)
