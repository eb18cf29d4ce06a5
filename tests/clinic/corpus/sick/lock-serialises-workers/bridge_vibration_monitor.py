# cause: lock-serialises-workers
"""Damage detection on a bridge: acceleration records of a sensor gateway, spectra, autoencoder."""
import argparse
import functools
import logging
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(message)s")
logger = logging.getLogger("bridge")


def exclusive(method):
    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        with self.gate:
            return method(self, *args, **kwargs)
    return wrapper


class Resource:
    """Base of everything that talks to hardware or files."""

    gate = multiprocessing.RLock()

    def __init__(self, name):
        self.name = name
        self.reads = 0


class Gateway(Resource):
    """Answers requests for one window of one sensor."""

    round_trip = 0.005

    def __init__(self, name, span, seed):
        super().__init__(name)
        self.span, self.seed = span, seed

    @exclusive
    def window(self, start, length):
        time.sleep(self.round_trip)
        self.reads += 1
        rng = np.random.default_rng((self.seed, start))
        t = np.arange(start, start + length) / 200.0
        modes = sum(a * np.sin(2 * np.pi * f * t + p) for f, a, p in zip((2.1, 3.4, 7.9), (1.0, 0.6, 0.3), rng.uniform(0, 6, 3)))
        return (modes + rng.normal(0, 0.3, length)).astype(np.float32)


class SensorRecords(Dataset):
    def __init__(self, gateway, windows, length=1024):
        self.gateway, self.windows, self.length = gateway, windows, length
        self.taper = np.hanning(length).astype(np.float32)

    def __len__(self):
        return self.windows

    def __getitem__(self, index):
        wave = self.gateway.window(index * self.length // 2, self.length)
        wave = wave - wave.mean()
        spectrum = np.abs(np.fft.rfft(wave * self.taper))[:256]
        return torch.from_numpy(np.log1p(spectrum).astype(np.float32))


class Autoencoder(nn.Module):
    def __init__(self, width=256, code=12):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, code))
        self.decode = nn.Sequential(nn.Linear(code, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x):
        return self.decode(self.encode(x))


def build_loader(options):
    sensors = [SensorRecords(Gateway(f"pier-{k}", span=k, seed=100 + k), options.windows) for k in range(options.sensors)]
    return DataLoader(ConcatDataset(sensors), batch_size=options.batch, shuffle=True, num_workers=options.workers,
                      persistent_workers=options.workers > 0, drop_last=True)


def train(options):
    loader = build_loader(options)
    model = Autoencoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * len(loader))
    for epoch in range(1, options.epochs + 1):
        begin = time.perf_counter()
        errors = []
        for spectra in loader:
            loss = nn.functional.mse_loss(model(spectra), spectra)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            errors.append(loss.item())
        seconds = time.perf_counter() - begin
        logger.info("epoch %d  error %.4f  %.0f windows/s", epoch, np.mean(errors), len(loader) * options.batch / seconds)
    limit = np.mean(errors) + 3 * np.std(errors)
    logger.info("alarm threshold %.4f", limit)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sensors", type=int, default=4)
    parser.add_argument("--windows", type=int, default=160)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
