"""Speech command model; an 'epoch' is a fixed number of batches of the shuffled set."""
import tempfile
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Options:
    clips: int = 400
    batch: int = 8
    batches_per_epoch: int = 14
    epochs: int = 3
    rate: int = 8000


class Commands(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.wav"))
        self.window = np.hanning(400)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with wave.open(str(self.files[i])) as w:
            x = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2").astype(np.float64) / 32768
        frames = np.lib.stride_tricks.sliding_window_view(x, 400)[::80] * self.window
        spec = np.log1p(np.abs(np.fft.rfft(frames, n=1024, axis=1)))[:, :128]
        return torch.from_numpy(spec.astype(np.float32))[None], int(self.files[i].stem.split("_")[0])


def synthesise(folder, opt):
    rs = np.random.RandomState(0)
    t = np.arange(opt.rate) / opt.rate
    for i in range(opt.clips):
        k = i % 8
        x = 0.5 * np.sin(2 * np.pi * (200 + 90 * k) * t) + rs.normal(0, .05, len(t))
        with wave.open(str(Path(folder) / f"{k}_{i:04d}.wav"), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(opt.rate)
            w.writeframes((x.clip(-1, 1) * 32767).astype("<i2").tobytes())


class CommandNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 24, 5, 2), nn.ReLU(), nn.Conv2d(24, 48, 3), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(48, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(64, 8)

    def forward(self, x):
        return self.head(self.body(x))


def main(opt):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        synthesise(folder, opt)
        loader = DataLoader(Commands(folder), batch_size=opt.batch, shuffle=True, num_workers=2, persistent_workers=True)
        model = CommandNet()
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(opt.epochs):
            running = 0.0
            for k, (x, y) in enumerate(loader, 1):
                loss = nn.functional.cross_entropy(model(x), y)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                running += loss.item()
                if k == opt.batches_per_epoch:
                    break
            print(f"epoch {epoch} loss {running / k:.3f}", flush=True)


if __name__ == "__main__":
    main(Options())
