# ruff: noqa
from torch.utils.data import DataLoader, TensorDataset

train_loader = DataLoader(TensorDataset(), num_workers=2, shuffle=True)
for step in range(1000):
    batch = next(iter(train_loader))  # finds PS408
    print(batch)

while True:
    batch = iter(train_loader).__next__()  # finds PS408
