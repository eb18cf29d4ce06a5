# cause: fd-exhausted
# limits: nofile=256
"""Validation keeps every batch until the end to compute a metric over all of it."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def evaluate(model, loader):
    seen, answers = [], []
    with torch.no_grad():
        for features, labels in loader:
            seen.append((features, labels))
            answers.append(model(features).argmax(1))
    labels = torch.cat([label for _, label in seen])
    return (torch.cat(answers) == labels).float().mean().item()


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(6000, 20), torch.randint(0, 4, (6000,)))
    loader = DataLoader(data, batch_size=16, num_workers=2)
    model = torch.nn.Linear(20, 4)
    for epoch in range(2):
        print("accuracy", evaluate(model, loader))


if __name__ == "__main__":
    main()
