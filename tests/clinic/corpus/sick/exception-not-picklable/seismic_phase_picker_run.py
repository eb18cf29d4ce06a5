# cause: exception-not-picklable
"""Picks P arrivals in three-component seismograms read from a day archive."""
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAGIC, SAMPLES = b"SG01", 2400


def problem_family(area, **kinds):
    """One base error for an area, and one error for everything that can go wrong there."""
    base = type(f"{area}Problem", (Exception,), {"area": area})
    members = {name: type(f"{area}{name}", (base,), {"__doc__": text}) for name, text in kinds.items()}
    return type(area, (), {"Any": base, **members})


Record = problem_family(
    "Record",
    Truncated="the file ends before the samples do",
    Foreign="not one of our files",
    Flat="a component without any signal",
)


def write_archive(folder, count, rng):
    onsets = rng.integers(500, 1900, count)
    for number, onset in enumerate(onsets):
        trace = rng.normal(0, 1, (3, SAMPLES)).astype("<f4")
        decay = np.exp(-np.arange(SAMPLES - onset) / 300.0)
        trace[:, onset:] += 6 * decay * np.sin(np.arange(SAMPLES - onset) * 0.35)
        if number in (count // 3, 2 * count // 3):
            trace[1] = 0.0  # the north component was unplugged
        body = MAGIC + struct.pack("<II", SAMPLES, int(onset)) + trace.tobytes()
        (folder / f"ev{number:05d}.sg").write_bytes(body)


class SeismogramDataset(Dataset):
    def __init__(self, folder, numbers):
        self.folder, self.numbers = str(folder), np.asarray(numbers)

    def __len__(self):
        return len(self.numbers)

    def load(self, number):
        data = Path(self.folder, f"ev{number:05d}.sg").read_bytes()
        if data[:4] != MAGIC:
            raise Record.Foreign(f"event {number}")
        samples, onset = struct.unpack_from("<II", data, 4)
        if len(data) - 12 != 12 * samples:
            raise Record.Truncated(f"event {number}: {len(data)} bytes")
        trace = np.frombuffer(data, dtype="<f4", offset=12).reshape(3, samples)
        if (trace.std(axis=1) < 1e-6).any():
            raise Record.Flat(f"event {number}")
        return trace, onset

    def __getitem__(self, index):
        trace, onset = self.load(int(self.numbers[index]))
        spectrum = np.fft.rfft(trace, axis=1)
        frequency = np.fft.rfftfreq(trace.shape[1], 0.01)
        filtered = [np.fft.irfft(spectrum * ((frequency > low) & (frequency < high)), trace.shape[1], axis=1)
                    for low, high in ((1, 5), (4, 10), (8, 20))]
        stacked = np.concatenate(filtered) / trace.std()
        envelope = np.abs(stacked).reshape(9, -1, 8).max(2)
        return torch.from_numpy(envelope.astype(np.float32)), torch.tensor(onset / trace.shape[1], dtype=torch.float32)


class Picker(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(9, 16, 9, padding=4), nn.ReLU(), nn.Conv1d(16, 16, 9, padding=4), nn.ReLU(), nn.Conv1d(16, 1, 1))

    def forward(self, envelope):
        weight = self.net(envelope).squeeze(1).softmax(1)
        return (weight * torch.linspace(0, 1, weight.shape[1])).sum(1)


def usable(loader, rejected):
    """Batches of the loader without those that contain a record we cannot use."""
    batches = iter(loader)
    while True:
        try:
            yield next(batches)
        except StopIteration:
            return
        except Record.Any as problem:
            rejected.append(str(problem).strip().splitlines()[-1])


def main(events=900, epochs=3, workers=2):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="seis-") as name:
        write_archive(Path(name), events, np.random.default_rng(12))
        cut = int(0.9 * events)
        train_loader = DataLoader(SeismogramDataset(name, range(cut)), batch_size=16, shuffle=True, num_workers=workers, persistent_workers=True)
        val_loader = DataLoader(SeismogramDataset(name, range(cut, events)), batch_size=16, num_workers=workers, persistent_workers=True)
        model = Picker()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for epoch in range(epochs):
            rejected, started, steps = [], time.perf_counter(), 0
            for envelope, onset in usable(train_loader, rejected):
                loss = nn.functional.l1_loss(model(envelope), onset)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
            with torch.no_grad():
                errors = [(model(envelope) - onset).abs().mean().item() for envelope, onset in usable(val_loader, rejected)]
            print(f"epoch {epoch}: {steps} steps, val error {24 * np.mean(errors):.2f} s, {len(rejected)} batches rejected, "
                  f"{time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
