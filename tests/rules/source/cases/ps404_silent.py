# ruff: noqa
from torch.utils.data import DataLoader, TensorDataset

pinned = DataLoader(TensorDataset(), num_workers=2, pin_memory=True)
for images in pinned:
    images = images.to("cuda", non_blocking=True)
blocking = DataLoader(TensorDataset(), num_workers=2)
for images in blocking:
    images = images.to("cuda")
