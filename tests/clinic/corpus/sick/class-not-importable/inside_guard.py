# cause: class-not-importable
import torch
from torch.utils.data import DataLoader, Dataset

if __name__ == "__main__":

    class Pairs(Dataset):
        def __init__(self, n):
            self.left, self.right = torch.randn(n, 8), torch.randn(n, 8)

        def __len__(self):
            return len(self.left)

        def __getitem__(self, i):
            return self.left[i], self.right[i]

    loader = DataLoader(Pairs(200), batch_size=20, num_workers=2, multiprocessing_context="forkserver")
    model = torch.nn.Bilinear(8, 8, 1)
    for epoch in range(2):
        for a, b in loader:
            model(a, b).mean().backward()
    print("trained")
