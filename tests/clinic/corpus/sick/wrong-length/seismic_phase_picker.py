# cause: wrong-length
"""P-phase picker: streams three-component traces, scores every sample, cosine schedule per step."""
import argparse
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

HEADER = struct.Struct("<iif")
SAMPLES = 3000


def record(folder, networks, per_network, seed=17):
    """One binary file per network: header (id, onset, signal to noise ratio), then int16 traces."""
    g = np.random.default_rng(seed)
    t = np.arange(SAMPLES)
    for k in range(networks):
        with open(folder / f"net{k:02d}.trc", "wb") as f:
            for i in range(per_network):
                onset, snr = int(g.integers(600, 2400)), float(g.lognormal(1.0, 0.8))
                wave = np.where(t > onset, np.exp(-(t - onset) / 400) * np.sin((t - onset) / g.uniform(2, 6)), 0)
                x = g.normal(0, 1, (3, SAMPLES)) + snr * wave * g.uniform(0.3, 1, (3, 1))
                f.write(HEADER.pack(i, onset, snr))
                f.write((x * 300).clip(-32000, 32000).astype("<i2").tobytes())


class TraceFile:
    size = HEADER.size + 3 * SAMPLES * 2

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return self.path.stat().st_size // self.size

    def __iter__(self):
        with open(self.path, "rb") as f:
            while head := f.read(HEADER.size):
                _, onset, snr = HEADER.unpack(head)
                yield np.frombuffer(f.read(3 * SAMPLES * 2), "<i2").reshape(3, SAMPLES), onset, snr


class Archive(IterableDataset):
    def __init__(self, folder, min_snr=0.0):
        self.files = [TraceFile(p) for p in sorted(Path(folder).glob("*.trc"))]
        self.min_snr = min_snr

    def __len__(self):
        return sum(map(len, self.files))

    def mine(self):
        info = get_worker_info()
        return self.files if info is None else self.files[info.id::info.num_workers]

    def __iter__(self):
        for traces in self.mine():
            for raw, onset, snr in traces:
                if snr >= self.min_snr:
                    yield self.prepare(raw, onset)

    def prepare(self, raw, onset):
        x = raw.astype(np.float64)
        spectrum = np.fft.rfft(x - x.mean(1, keepdims=True), axis=1)
        f = np.fft.rfftfreq(SAMPLES, 0.01)
        bands = [np.fft.irfft(spectrum * np.exp(-((f - c) / (0.4 * c)) ** 2), SAMPLES, axis=1) for c in (1, 2, 4, 6, 9, 14)]
        x = np.concatenate(bands)
        ratio = np.abs(x)
        c = np.cumsum(np.pad(ratio, ((0, 0), (1, 0))), 1)
        short, long = c[:, 50:] - c[:, :-50], c[:, 500:] - c[:, :-500]
        sta_lta = np.zeros_like(x)
        sta_lta[:, 499:] = 10 * short[:, -long.shape[1]:] / (long + 1e-9)
        y = np.exp(-0.5 * ((np.arange(SAMPLES) - onset) / 15.0) ** 2)
        out = np.concatenate([x / (x.std(1, keepdims=True) + 1e-9), sta_lta])[:, ::4]
        return torch.from_numpy(out.astype(np.float32)), torch.from_numpy(y[::4].astype(np.float32))


class Picker(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(36, width, 9, padding=4), nn.ReLU(), nn.Conv1d(width, width, 9, padding=8, dilation=2), nn.ReLU(), nn.Conv1d(width, 1, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--networks", type=int, default=6)
    p.add_argument("--traces", type=int, default=260)
    p.add_argument("--min-snr", type=float, default=2.0)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch", type=int, default=20)
    a = p.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="traces-") as tmp:
        record(Path(tmp), a.networks, a.traces)
        loader = DataLoader(Archive(tmp, a.min_snr), a.batch, num_workers=2, persistent_workers=True)
        model = Picker()
        opt = torch.optim.Adam(model.parameters(), 3e-3)
        steps = len(loader) * a.epochs
        plan = torch.optim.lr_scheduler.OneCycleLR(opt, 6e-3, total_steps=steps)
        print(f"{len(loader.dataset)} traces, {steps} steps planned")
        for epoch in range(a.epochs):
            t, loss_sum, off = time.time(), 0.0, []
            for x, y in loader:
                score = model(x)
                loss = nn.functional.binary_cross_entropy_with_logits(score, y, pos_weight=torch.tensor(8.0))
                opt.zero_grad()
                loss.backward()
                opt.step()
                plan.step()
                loss_sum += loss.item()
                off.append((score.argmax(1) - y.argmax(1)).abs().float().median().item())
            print(f"epoch {epoch} loss {loss_sum / len(loader):.4f} median miss {4 * np.median(off):.0f} samples lr {plan.get_last_lr()[0]:.5f} {time.time() - t:.1f}s", flush=True)


if __name__ == "__main__":
    main()
