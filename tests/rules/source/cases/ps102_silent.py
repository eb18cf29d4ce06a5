# ruff: noqa
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset


def train(batches):
    for batch in batches:
        print(batch)


def main():
    loader = DataLoader(TensorDataset(), num_workers=2, multiprocessing_context="spawn")
    train(loader)
    for batch in loader:
        print(batch)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    main()
