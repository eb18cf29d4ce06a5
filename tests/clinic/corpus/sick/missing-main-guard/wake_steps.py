# cause: missing-main-guard
"""Ship classification from wake spectra (AIS labels). Nightly job: python wake_steps.py"""
import os
import tempfile

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

SETTINGS = {"n": 160, "length": 2048, "classes": 4, "batch": 16, "epochs": 2, "loader": {"num_workers": 2, "persistent_workers": True}}


class WakeRecordings(Dataset):
    def __init__(self, folder):
        self.paths = sorted(os.path.join(folder, f) for f in os.listdir(folder))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        signal = np.load(self.paths[i])
        frames = np.lib.stride_tricks.sliding_window_view(signal, 256)[::64] * np.hanning(256)
        power = np.log1p(np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32)
        label = int(os.path.basename(self.paths[i]).split("_")[0])
        return torch.from_numpy(power.T.copy()), label


class Callback:
    def on_epoch(self, trainer, epoch, loss):
        pass


class PrintLoss(Callback):
    def on_epoch(self, trainer, epoch, loss):
        print(f"[{epoch}] loss {loss:.3f}", flush=True)


class StopWhenFlat(Callback):
    def __init__(self, delta=1e-3):
        self.best, self.delta = float("inf"), delta

    def on_epoch(self, trainer, epoch, loss):
        trainer.stop = loss > self.best - self.delta
        self.best = min(self.best, loss)


class Trainer:
    def __init__(self, model, data, settings, callbacks=()):
        self.model, self.callbacks, self.stop = model, callbacks, False
        context = mp.get_context("spawn")    # the signal library of the station keeps threads
        self.loader = DataLoader(data, settings["batch"], shuffle=True, multiprocessing_context=context, **settings["loader"])
        self.opt = torch.optim.Adam(model.parameters(), 1e-3)

    def epoch(self):
        losses = []
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def run(self, epochs):
        for e in range(epochs):
            loss = self.epoch()
            for c in self.callbacks:
                c.on_epoch(self, e, loss)
            if self.stop:
                break


def synthesise(folder, settings):
    rng = np.random.default_rng(0)
    t = np.arange(settings["length"]) / 256
    for i in range(settings["n"]):
        k = i % settings["classes"]
        wave = np.sin(2 * np.pi * (5 + 9 * k) * t + rng.uniform(0, 6)) + rng.normal(0, 0.8, len(t))
        np.save(os.path.join(folder, f"{k}_{i:04d}.npy"), wave.astype(np.float32))


def network(settings):
    return nn.Sequential(nn.Conv1d(129, 32, 3), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(32, settings["classes"]))


def main(settings):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        synthesise(folder, settings)
        trainer = Trainer(network(settings), WakeRecordings(folder), settings, [PrintLoss(), StopWhenFlat()])
        trainer.run(settings["epochs"])


main(SETTINGS)
