# The four dialects are told apart by their pitch contours; utterances have different lengths.
import functools
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, random_split

torch.manual_seed(12)
torch.set_num_threads(1)
RATE, BANDS, DIALECTS = 8000, 40, 4


@functools.lru_cache(maxsize=4)
def filter_bank(bins):
    centres = np.geomspace(2, bins - 2, BANDS)
    grid = np.arange(bins)[:, None]
    return np.exp(-0.5 * ((grid - centres) / (0.1 * centres + 1)) ** 2).astype(np.float32)


@functools.lru_cache(maxsize=32)
def room_response(room):
    rng = np.random.default_rng(room)
    tail = rng.normal(0, 1, 400) * np.exp(-np.arange(400) / 60)
    tail[0] = 4
    return np.fft.rfft(tail / 4, 16384)


class Utterances(Dataset):
    def __init__(self, count, seed=0):
        rng = np.random.default_rng(seed)
        self.dialect = rng.integers(0, DIALECTS, count)
        self.length = rng.integers(4000, 10000, count)
        self.pitch = rng.uniform(100, 240, count)

    def __len__(self):
        return len(self.dialect)

    def __getitem__(self, index):
        t = np.arange(self.length[index]) / RATE
        contour = (1.0, 1 + 0.4 * t, 1.3 - 0.4 * t, 1 + 0.2 * np.sin(9 * t))[self.dialect[index]] * self.pitch[index]
        phase = 2 * np.pi * np.cumsum(np.broadcast_to(contour, t.shape)) / RATE
        wave = np.sin(phase) + 0.5 * np.sin(2 * phase)
        if np.random.rand() < 0.5:
            wave = np.fft.irfft(np.fft.rfft(wave, 16384) * room_response(np.random.randint(32)))[:len(t)]
        wave = wave.astype(np.float32) + 0.05 * np.random.standard_normal(len(t)).astype(np.float32)
        frames = np.lib.stride_tricks.sliding_window_view(wave, 400)[::160] * np.hanning(400).astype(np.float32)
        power = np.abs(np.fft.rfft(frames, axis=1)).astype(np.float32) ** 2
        return torch.from_numpy(np.log(power @ filter_bank(power.shape[1]) + 1e-3)), int(self.dialect[index])


def pad(samples):
    features, dialects = zip(*samples)
    lengths = torch.tensor([len(f) for f in features])
    return pad_sequence(features, batch_first=True), lengths, torch.tensor(dialects)


class DialectNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.rnn = nn.GRU(BANDS, width, batch_first=True)
        self.head = nn.Linear(width, DIALECTS)

    def forward(self, features, lengths):
        states, _ = self.rnn(features)
        valid = torch.arange(states.shape[1])[None] < lengths[:, None]
        return self.head((states * valid[..., None]).sum(1) / lengths[:, None])


def evaluate(model, loader):
    hits = total = 0
    with torch.no_grad():
        for features, lengths, dialects in loader:
            hits += (model(features, lengths).argmax(1) == dialects).sum().item()
            total += len(dialects)
    return hits / total


train_set, test_set = random_split(Utterances(960), [800, 160])
options = dict(batch_size=32, collate_fn=pad, num_workers=2, persistent_workers=True)
train, test = DataLoader(train_set, shuffle=True, **options), DataLoader(test_set, **options)
model = DialectNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(4):
    start = time.perf_counter()
    for features, lengths, dialects in train:
        loss = nn.functional.cross_entropy(model(features, lengths), dialects)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    rate = len(train_set) / (time.perf_counter() - start)
    print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {evaluate(model, test):.3f}, {rate:.0f} utterances/s", flush=True)
