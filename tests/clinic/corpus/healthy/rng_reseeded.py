"""Augmentation draws from a numpy Generator that each worker seeds for itself."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Noisy(Dataset):
    def __init__(self, count):
        self.rng = np.random.default_rng()
        self.clean = np.zeros((count, 32), dtype=np.float32)

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        return torch.from_numpy(self.clean[i] + self.rng.normal(0, 0.1, 32).astype(np.float32))


def seed_worker(worker_id):
    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


def main():
    loader = DataLoader(Noisy(320), batch_size=16, shuffle=True, num_workers=2, worker_init_fn=seed_worker)
    model = torch.nn.Linear(32, 32)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        for batch in loader:
            loss = (model(batch) - batch).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
