"""A notebook that was exported to a script; fork needs no guard."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sine(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        x = torch.tensor([i / 85.0 - 3])
        return x, torch.sin(x)


train_loader = DataLoader(Sine(), batch_size=64, shuffle=True, num_workers=2)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    for xb, yb in train_loader:
        loss = nn.functional.mse_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
