"""Sequence model whose context grows; the current length lives in shared memory."""
import multiprocessing as mp

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Shared:
    """A number that all processes see."""

    def __init__(self, value):
        self._value = mp.Value("i", value)

    def get(self):
        return self._value.value

    def set(self, value):
        self._value.value = value


class Walks(Dataset):
    def __init__(self, n, length, context):
        self.data = np.cumsum(np.random.RandomState(0).normal(size=(n, length)), axis=1)
        self.context = context

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        x = self.data[i]
        spans = [x]
        for w in (4, 8, 16, 32):
            view = np.lib.stride_tricks.sliding_window_view(np.pad(x, (w - 1, 0), mode="edge"), w)
            spans += [view.mean(1), np.median(view, axis=1)]
        feats = np.stack(spans, 1)
        feats = (feats - feats.mean(0)) / (feats.std(0) + 1e-6)
        keep = self.context.get()
        feats[:-keep] = 0
        return torch.from_numpy(feats.astype(np.float32)), torch.tensor(x[-1] - x[-2], dtype=torch.float32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(9, 64, 5), nn.ReLU(), nn.Conv1d(64, 96, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(4))
        self.out = nn.Linear(384, 1)

    def forward(self, x):
        return self.out(self.conv(x.transpose(1, 2)).flatten(1)).squeeze(1)


def main(epochs=3):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    context = Shared(32)
    data = Walks(240, 256, context)
    sampler = RandomSampler(data, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(data, batch_size=12, sampler=sampler, num_workers=2, persistent_workers=True)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        context.set(32 * (epoch + 1))
        used = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            used += (x[:, :, 1] != 0).float().sum(1).mean().item() / len(loader)
        print(f"epoch {epoch} loss {loss.item():.3f} context {used:.0f}", flush=True)


if __name__ == "__main__":
    main()
