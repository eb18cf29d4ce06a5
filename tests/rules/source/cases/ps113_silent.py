# ruff: noqa
import torch
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda")


class Images(Dataset):
    def __init__(self):
        self.images = torch.zeros(10, 3)

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return self.images[index].to(torch.float32)


class OnGpu(Images):
    def __getitem__(self, index):
        return self.images[index].cuda()


loader = DataLoader(Images(), num_workers=2)
for batch in loader:
    batch = batch.to(device)
alone = DataLoader(OnGpu(), batch_size=4)
