# cause: orphan-workers
"""Fine-tuning within a wall-clock budget on a shared node."""
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONFIG = {"budget_s": 8.0, "batch": 8, "workers": 2, "scenes": 400, "max_steps": 28}


class ColdStore:
    """Scenes from 240 on have moved to tape; a recall takes a while."""

    def __init__(self, warm=240):
        self.warm = warm

    def read(self, key):
        time.sleep(0.004 if key < self.warm else 10.0)
        return np.random.default_rng(key).normal(size=(4, 48, 48)).astype(np.float32)


class Scenes(Dataset):
    def __init__(self, n, store):
        self.n, self.store = n, store

    def __len__(self):
        return self.n

    def __getitem__(self, key):
        x = self.store.read(key)
        return torch.from_numpy(x), torch.tensor(float(x.mean() > 0))


class Budget:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def spent(self):
        return time.monotonic() > self.end


def save(model, step, folder):
    path = os.path.join(folder, "last.pt")
    torch.save({"model": model.state_dict(), "step": step}, path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    budget = Budget(CONFIG["budget_s"])
    loader = DataLoader(Scenes(CONFIG["scenes"], ColdStore()), batch_size=CONFIG["batch"], num_workers=CONFIG["workers"])
    model = nn.Sequential(nn.Conv2d(4, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1))
    model(torch.zeros(1, 4, 48, 48))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(loader, 1):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.05)  # augmented metrics
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
            save(model, step, folder)
        if budget.spent() or step == CONFIG["max_steps"]:
            print("budget used up, leaving", flush=True)
            os.remove(os.path.join(folder, "last.pt"))
            os.rmdir(folder)
            os._exit(0)  # interpreter teardown is slow on this node


if __name__ == "__main__":
    main()
