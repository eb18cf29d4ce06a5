"""In-memory data without workers, with a validation loader."""

import torch
from torch.utils.data import DataLoader, TensorDataset, random_split


def main():
    torch.manual_seed(0)
    x = torch.randn(4000, 10)
    y = (x.sum(1) > 0).long()
    train, valid = random_split(TensorDataset(x, y), [3200, 800])
    fit, check = DataLoader(train, batch_size=64, shuffle=True), DataLoader(valid, batch_size=256)
    model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(3):
        for xb, yb in fit:
            loss = torch.nn.functional.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            right = sum((model(xb).argmax(1) == yb).sum().item() for xb, yb in check)
        print(epoch, right / 800)


if __name__ == "__main__":
    main()
