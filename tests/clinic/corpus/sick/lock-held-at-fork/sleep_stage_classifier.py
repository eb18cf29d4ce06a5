# cause: lock-held-at-fork
"""Sleep staging from two EEG channels, with a journal of what was read and how it went."""
import atexit
import gzip
import json
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STAGES = ("wake", "n1", "n2", "n3", "rem")
SAMPLES = 3000


class Journal:
    """Collects events in memory; `publish` writes them out while training goes on."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.events = []
        self.guard = threading.Lock()
        self.writer = None

    def note(self, kind, **details):
        with self.guard:
            self.events.append({"kind": kind, "at": round(time.time(), 3), **details})

    def _write(self, name):
        with self.guard, gzip.open(self.folder / f"{name}.jsonl.gz", "wt") as out:
            for number, event in enumerate(self.events):
                out.write(json.dumps(event) + "\n")
                if number % 25 == 0:
                    out.flush()
                    time.sleep(0.02)  # the share is slow and belongs to everybody
            self.events.clear()

    def publish(self, name):
        self.wait()
        self.writer = threading.Thread(target=self._write, args=(name,), name=f"journal-{name}", daemon=True)
        self.writer.start()

    def wait(self):
        if self.writer is not None:
            self.writer.join()
            self.writer = None


class JournalMixin:
    journal = None

    def attach(self, journal):
        self.journal = journal
        return self

    def observed(self, kind, **details):
        if self.journal is not None:
            self.journal.note(kind, **details)


class Nights(JournalMixin, Dataset):
    def __init__(self, subjects, epochs_per_night, seed):
        self.subjects, self.per_night, self.seed = subjects, epochs_per_night, seed

    def __len__(self):
        return self.subjects * self.per_night

    def signal(self, index):
        rng = np.random.default_rng((self.seed, index))
        stage = int(rng.integers(len(STAGES)))
        t = np.arange(SAMPLES) / 100.0
        rhythm = np.sin(2 * np.pi * (2.0 + 3.0 * stage) * t + rng.uniform(0, 6.28))
        return rng.standard_normal((2, SAMPLES)) + 0.8 * rhythm, stage

    def __getitem__(self, index):
        raw, stage = self.signal(index)
        spectrum = np.fft.rfft(raw, axis=1)
        spectrum[:, :5] = 0
        clean = np.fft.irfft(spectrum, SAMPLES, axis=1)
        windows = np.lib.stride_tricks.sliding_window_view(clean, 256, axis=1)[:, ::32]
        power = np.log1p(np.abs(np.fft.rfft(windows * np.hanning(256), axis=2))[:, :, :64])
        amplitude = float(np.abs(clean).max())
        if amplitude > 4.0:
            self.observed("artefact", index=int(index), amplitude=round(amplitude, 2))
        return torch.from_numpy(power.astype(np.float32)), stage


class StageNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(2, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.out = nn.Linear(256, len(STAGES))

    def forward(self, x):
        return self.out(self.conv(x).flatten(1))


def epoch_of(model, loader, journal, phase, optimizer=None):
    correct = seen = 0
    for number, (x, y) in enumerate(loader):
        with torch.set_grad_enabled(optimizer is not None):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for stage, guess in zip(y.tolist(), logits.argmax(1).tolist()):
            journal.note(phase, batch=number, truth=STAGES[stage], guess=STAGES[guess])
        correct += (logits.argmax(1) == y).sum().item()
        seen += len(y)
    return correct / seen


def main(epochs=2, workers=2):
    torch.manual_seed(4)
    folder = tempfile.TemporaryDirectory(prefix="sleep-")
    atexit.register(folder.cleanup)
    journal = Journal(folder.name)
    train = Nights(subjects=12, epochs_per_night=100, seed=1).attach(journal)
    test = Nights(subjects=4, epochs_per_night=80, seed=2).attach(journal)
    train_loader = DataLoader(train, batch_size=24, shuffle=True, num_workers=workers, persistent_workers=True)
    test_loader = DataLoader(test, batch_size=32, num_workers=workers, persistent_workers=True)
    model = StageNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        started = time.perf_counter()
        train_accuracy = epoch_of(model, train_loader, journal, "train", optimizer)
        print(f"epoch {epoch}: train accuracy {train_accuracy:.3f} after {time.perf_counter() - started:.1f} s", flush=True)
        journal.publish(f"train-{epoch}")
        test_accuracy = epoch_of(model, test_loader, journal, "test")
        journal.publish(f"test-{epoch}")
        print(f"epoch {epoch}: test accuracy {test_accuracy:.3f}", flush=True)
    journal.wait()
    print(sorted(p.name for p in Path(folder.name).iterdir()))


if __name__ == "__main__":
    main()
