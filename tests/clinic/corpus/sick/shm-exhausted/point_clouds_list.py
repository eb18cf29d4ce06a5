# cause: shm-exhausted
# limits: shm=64M
"""Point clouds of different sizes, kept as a list per batch: nothing to stack."""

import torch
from torch.utils.data import DataLoader, Dataset


class Clouds(Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        n = 200_000 + 5_000 * (index % 7)
        return torch.randn(n, 3, generator=g), index % 5


def keep_lists(samples):
    return [cloud for cloud, _ in samples], torch.tensor([label for _, label in samples])


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 5))
    opt = torch.optim.Adam(model.parameters())
    loader = DataLoader(Clouds(), batch_size=8, num_workers=3, collate_fn=keep_lists)
    for epoch in range(2):
        running = 0.0
        for clouds, labels in loader:
            logits = torch.stack([model(cloud[:256]).mean(0) for cloud in clouds])
            loss = torch.nn.functional.cross_entropy(logits, labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
        print(epoch, running)


main()
