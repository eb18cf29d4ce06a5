# ruff: noqa
import json

import numpy
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.options = json.load(file)
            self.captions = numpy.array(json.load(file))

    def __len__(self):
        return len(self.captions)

    def __getitem__(self, index):
        return self.captions[index]


loader = DataLoader(Captions("x"), num_workers=4)
