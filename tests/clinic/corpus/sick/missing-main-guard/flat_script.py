# cause: missing-main-guard
"""A notebook that was exported to a script."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
x = torch.linspace(-3, 3, 512).unsqueeze(1)
y = torch.sin(x) + 0.1 * torch.randn_like(x)

train_loader = DataLoader(
    TensorDataset(x, y), batch_size=64, shuffle=True, num_workers=2, multiprocessing_context="spawn"
)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    for xb, yb in train_loader:
        loss = nn.functional.mse_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
