from __future__ import annotations

import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, random_split

from penstock._lab.inside.loaders import dataset_of


class Own(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


def site(dataset):
    return dataset_of(DataLoader(dataset), is_used=False)["site"]


def test_a_dataset_stands_where_the_user_wrote_it():
    assert (site(Own())["file"], site(Own())["symbol"]) == (__file__, "Own")
    for wrapped in (Subset(Own(), [0]), ConcatDataset([Own()]), random_split(ConcatDataset([Own()]), [4])[0]):
        assert site(wrapped) == site(Own())


def test_a_dataset_of_torchs_alone_stands_nowhere():
    assert site(TensorDataset(torch.arange(3))) is None
    assert site(Subset(TensorDataset(torch.arange(3)), [0])) is None
