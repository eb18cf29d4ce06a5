# ruff: noqa
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(), num_workers=16, prefetch_factor=8)  # finds PS215
