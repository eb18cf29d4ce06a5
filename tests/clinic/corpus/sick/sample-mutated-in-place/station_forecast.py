# cause: sample-mutated-in-place
"""Next-day temperature class from multi-station records (values come in Kelvin and Pascal)."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHANNELS = ["t2m", "d2m", "msl"]


def simulate(n, hours, seed):
    rng = np.random.default_rng(seed)
    h = np.arange(hours)
    records = []
    for _ in range(n):
        warm = rng.normal(0, 8)
        t = 285 + warm + 6 * np.sin(2 * np.pi * h / 24) + rng.normal(0, 1, hours)
        d = t - rng.gamma(2.0, 2.0, hours)
        p = 101325 + np.cumsum(rng.normal(0, 20, hours))
        rec = {"values": np.stack([t, d, p]).astype(np.float32), "target": float(warm > 0)}
        records.append(rec)
    return records


class StationRecords(Dataset):
    def __init__(self, records, window=25):
        self.records = records
        self.kernel = np.hanning(window) / np.hanning(window).sum()

    def __len__(self):
        return len(self.records)

    def to_si(self, values):
        values[0] -= 273.15
        values[1] -= 273.15
        values[2] /= 100.0
        return values

    def smooth(self, row):
        out = row.astype(np.float64)
        for _ in range(6):
            out = np.convolve(out, self.kernel, mode="same")
        return out

    def __getitem__(self, i):
        rec = self.records[i]
        values = self.to_si(rec["values"])
        slow = np.stack([self.smooth(r) for r in values])
        spec = np.abs(np.fft.rfft(values - slow, axis=1))[:, :64]
        daily = slow[:, : slow.shape[1] // 24 * 24].reshape(len(CHANNELS), -1, 24).mean(-1)
        feats = np.concatenate([daily[:, -60:], np.log1p(spec)], axis=1)
        return torch.from_numpy(feats.astype(np.float32)), torch.tensor(rec["target"])


def build_loaders(batch=20):
    records = simulate(700, 24 * 240, seed=11)
    train, val = StationRecords(records[:600]), StationRecords(records[600:])
    kw = dict(batch_size=batch, num_workers=2, persistent_workers=True)
    return DataLoader(train, shuffle=True, **kw), DataLoader(val, **kw)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.rnn = nn.GRU(3, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        h, _ = self.rnn(self.norm(x).transpose(1, 2))
        return self.out(h[:, -1]).squeeze(1)


def evaluate(model, loader):
    model.eval()
    hits = n = 0
    with torch.no_grad():
        for x, y in loader:
            hits += ((model(x) > 0) == (y > 0.5)).sum().item()
            n += len(y)
    return hits / n


def main(epochs=4):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train, val = build_loaders()
    model = Forecaster()
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        model.train()
        seen, loss_sum = 0, 0.0
        for x, y in train:
            opt.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            loss.backward()
            opt.step()
            seen += len(y)
            loss_sum += loss.item() * len(y)
        print(f"epoch {epoch} loss {loss_sum / seen:.4f} val acc {evaluate(model, val):.3f}", flush=True)


if __name__ == "__main__":
    main()
