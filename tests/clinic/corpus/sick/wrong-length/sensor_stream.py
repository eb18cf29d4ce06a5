# cause: wrong-length
"""Anomaly detection for machine vibration; recordings are streamed and cut into frames."""
import math
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FRAME = 512


class VibrationStream(IterableDataset):
    def __init__(self, folder, hop=256, limit=None):
        self.files = sorted(Path(folder).glob("*.npy"))[:limit]
        self.hop = hop
        sizes = [np.load(f, mmap_mode="r").shape[0] for f in self.files]
        self.frames = sum(n // FRAME for n in sizes)

    def __len__(self):
        return self.frames

    def _mine(self):
        info = get_worker_info()
        return self.files if info is None else self.files[info.id::info.num_workers]

    def __iter__(self):
        window = np.hanning(FRAME)
        for path in self._mine():
            signal = np.load(path)
            for start in range(0, len(signal) - FRAME + 1, self.hop):
                frame = signal[start:start + FRAME] * window
                cep = frame
                for _ in range(12):
                    spec = np.abs(np.fft.fft(cep, 4096)) + 1e-6
                    cep = np.fft.ifft(np.log(spec)).real[:FRAME]
                yield torch.from_numpy(np.concatenate([np.log(spec[:256]), cep[:64]]).astype(np.float32))


def record(folder, machines, seconds, rate=2048):
    rs = np.random.RandomState(6)
    t = np.arange(seconds * rate) / rate
    for m in range(machines):
        x = np.sin(2 * math.pi * (50 + m) * t) + 0.3 * np.sin(2 * math.pi * 3 * (50 + m) * t) + rs.normal(0, .1, len(t))
        np.save(Path(folder) / f"machine{m:02d}.npy", x)


class Detector(nn.Module):
    def __init__(self, width=320, code=16):
        super().__init__()
        self.enc = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, code))
        self.dec = nn.Sequential(nn.Linear(code, 256), nn.ReLU(), nn.Linear(256, width))

    def forward(self, x):
        return self.dec(self.enc(x))


def main(epochs=2, batch=16):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        record(folder, machines=8, seconds=8)
        loader = DataLoader(VibrationStream(folder), batch_size=batch, num_workers=2, persistent_workers=True)
        model = Detector()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        total_steps = epochs * len(loader)
        schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: max(0.0, 1 - s / total_steps))
        for epoch in range(epochs):
            losses = []
            for frames in loader:
                loss = nn.functional.mse_loss(model(frames), frames)
                opt.zero_grad()
                loss.backward()
                opt.step()
                schedule.step()
                losses.append(loss.item())
            print(f"epoch {epoch} steps {len(losses)} lr {schedule.get_last_lr()[0]:.2e} loss {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
