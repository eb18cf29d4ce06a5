# ruff: noqa
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(), num_workers=2)  # finds PS404
for step, (images, labels) in enumerate(loader):
    images = images.to("cuda", non_blocking=True)
