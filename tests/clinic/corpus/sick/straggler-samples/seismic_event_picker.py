# cause: straggler-samples
"""P-wave picking on three-component seismograms fetched from a waveform archive, 1-D conv net."""
import functools
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

EPOCHS = 2
BATCH = 8
WINDOW = 512


class NotStaged(OSError):
    """The archive still keeps the trace on tape; ask again after a while."""


def patient(attempts=6, first_wait=0.25):
    def wrap(method):
        @functools.wraps(method)
        def inner(self, key):
            wait = first_wait
            for attempt in range(attempts):
                try:
                    return method(self, key, attempt)
                except NotStaged:
                    time.sleep(wait)
                    wait = min(wait * 1.6, 0.5)
            raise NotStaged(key)
        return inner
    return wrap


class Archive:
    """Client of the archive, in this example with generated traces."""

    def __init__(self, network):
        self.network = network

    @patient()
    def trace(self, key, attempt):
        code = zlib.crc32(f"{self.network}.{key}".encode())
        if code % 130 == 7 and attempt < 4:
            raise NotStaged(key)
        time.sleep(0.004)
        rng = np.random.default_rng(code)
        onset = int(rng.integers(80, WINDOW - 80))
        data = rng.normal(0, 0.3, (3, WINDOW)).astype(np.float32)
        t = np.arange(WINDOW - onset, dtype=np.float32)
        data[:, onset:] += np.exp(-t / 60) * np.sin(t / 3) * rng.uniform(1, 3)
        return data, onset


class Waveforms(Dataset):
    def __init__(self, network, count):
        self.archive = Archive(network)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        data, onset = self.archive.trace(index)
        data = (data - data.mean(1, keepdims=True)) / data.std(1, keepdims=True)
        target = np.exp(-0.5 * ((np.arange(WINDOW) - onset) / 8.0) ** 2).astype(np.float32)
        return torch.from_numpy(data), torch.from_numpy(target)


class Picker(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(3, width, 11, padding=5), nn.ReLU(),
            nn.Conv1d(width, width, 11, padding=5), nn.ReLU(),
            nn.Conv1d(width, 1, 11, padding=5))

    def forward(self, x):
        return self.body(x).squeeze(1)


def make_loader(data, shuffle):
    return DataLoader(data, batch_size=BATCH, shuffle=shuffle, num_workers=4, persistent_workers=True)


def step(model, batch):
    x, y = batch
    return nn.functional.binary_cross_entropy_with_logits(model(x), y, pos_weight=torch.tensor(8.0))


torch.manual_seed(7)
torch.set_num_threads(1)
train = make_loader(ConcatDataset([Waveforms("CH", 480), Waveforms("GR", 440), Waveforms("NO", 280)]), True)
valid = make_loader(Waveforms("IV", 64), False)
model = Picker()
optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
history = []

for epoch in range(EPOCHS):
    begin = time.time()
    losses = []
    for number, batch in enumerate(train):
        loss = step(model, batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if number % 40 == 0:
            print(f"  {epoch}.{number:03d} loss {loss.item():.4f}", flush=True)
    took = time.time() - begin
    residual = []
    with torch.no_grad():
        for x, y in valid:
            residual.append((model(x).argmax(1) - y.argmax(1)).abs().float())
    history.append((float(np.mean(losses)), float(torch.cat(residual).median())))
    print(f"epoch {epoch}: loss {history[-1][0]:.4f}, median residual {history[-1][1]:.1f} samples, {took:.1f} s", flush=True)
