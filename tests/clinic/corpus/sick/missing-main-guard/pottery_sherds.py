# cause: missing-main-guard
# Classifier for rim profiles of pottery sherds (excavation season archive).
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler

WARES = ["bowl", "jar", "plate", "amphora"]
N_POINTS = 128


class RimProfiles(Dataset):
    """Outline -> curvature signature. Outlines are noisy tracings of the drawn sections."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.ware = rng.integers(0, len(WARES), n)
        self.seed = rng.integers(0, 2**31, n)

    def __len__(self):
        return len(self.ware)

    def outline(self, i):
        rng = np.random.default_rng(self.seed[i])
        t = np.linspace(0, 1, 2000)
        lean = [0.9, 0.1, 1.8, -0.4][self.ware[i]] + rng.normal(0, 0.1)
        lip = [0.05, 0.15, 0.02, 0.25][self.ware[i]]
        x = lean * t + lip * np.exp(-((t - 0.95) / 0.04) ** 2) + np.cumsum(rng.normal(0, 4e-4, t.size))
        return x, t

    def __getitem__(self, i):
        x, y = self.outline(i)
        for _ in range(30):
            x = np.convolve(np.pad(x, 2, mode="edge"), np.ones(5) / 5, "valid")
        dx, dy = np.gradient(x), np.gradient(y)
        k = (dx * np.gradient(dy) - dy * np.gradient(dx)) / (dx ** 2 + dy ** 2) ** 1.5
        idx = np.linspace(0, len(k) - 1, N_POINTS).astype(int)
        sig = np.stack([np.tanh(k[idx]), x[idx]]).astype(np.float32)
        return sig, int(self.ware[i])


class ProfileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv1d(2, 16, 7, 2)
        self.c2 = nn.Conv1d(16, 16, 5, 2)
        self.fc = nn.Linear(16, len(WARES))

    def forward(self, x):
        x = F.relu(self.c2(F.relu(self.c1(x))))
        return self.fc(x.mean(-1))


def accuracy(net, loader):
    good = total = 0
    with torch.no_grad():
        for x, y in loader:
            good += int((net(x).argmax(1) == y).sum())
            total += len(y)
    return good / total


torch.manual_seed(0)
torch.set_num_threads(1)
archive = RimProfiles(1500, seed=12)
order = torch.randperm(len(archive)).tolist()
options = dict(batch_size=25, num_workers=2, persistent_workers=True, multiprocessing_context="spawn")
train_loader = DataLoader(archive, sampler=SubsetRandomSampler(order[300:]), **options)
test_loader = DataLoader(archive, sampler=SubsetRandomSampler(order[:300]), **options)

net = ProfileNet()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

for epoch in range(4):
    net.train()
    for sig, ware in train_loader:
        loss = F.cross_entropy(net(sig), ware)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    net.eval()
    print(f"season model, epoch {epoch}: loss {loss.item():.3f} test {accuracy(net, test_loader):.3f}", flush=True)
