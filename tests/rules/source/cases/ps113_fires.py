# ruff: noqa
import torch
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Images(Dataset):
    def __init__(self):
        self.images = torch.zeros(10, 3).cuda()  # finds PS113
        self.labels = torch.zeros(10)

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return self.images[index], self.labels[index].to(device)  # finds PS113


def collate(batch):
    return torch.stack(batch).to("cuda:0")  # finds PS113


loader = DataLoader(Images(), num_workers=2, collate_fn=collate)
