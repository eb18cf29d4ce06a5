# ruff: noqa
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

mp.set_start_method("spawn")
loader = DataLoader(TensorDataset(), num_workers=2)


def train(batches):
    for batch in batches:
        print(batch)


train(loader)  # finds PS102
