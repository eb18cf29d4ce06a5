# ruff: noqa
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(), num_workers=16, prefetch_factor=2)
small = DataLoader(TensorDataset(), num_workers=2, prefetch_factor=8)
