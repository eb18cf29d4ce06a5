# cause: handle-shared-across-fork
# also: rng-repeated
"""Whale call detection in one long hydrophone recording. Windows are cut at random around the annotated calls."""
import argparse
import json
import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 4000


class Recording:
    """Random access to the samples of a wav file."""

    def __init__(self, path):
        self.wav = wave.open(str(path), "rb")
        self.frames = self.wav.getnframes()

    def read(self, start, length, block=1500):
        """Samples start .. start + length; the slow drift of the sensor is taken out block by block."""
        self.wav.setpos(start)
        parts = []
        for k in range(0, length, block):
            x = np.frombuffer(self.wav.readframes(min(block, length - k)), np.int16).astype(np.float32) / 32768
            parts.append(x - np.convolve(x, np.ones(401) / 401, "same"))
        return np.concatenate(parts).astype(np.float32)


class Jitter:
    """Where a window starts relative to the call, and how loud it is played."""

    def __init__(self, spread, seed):
        self.spread = spread
        self.rng = np.random.default_rng(seed)

    def __call__(self):
        return int(self.rng.integers(-self.spread, self.spread)), float(self.rng.uniform(0.6, 1.4))


class CallWindows(Dataset):
    def __init__(self, folder, seconds=3.0, seed=0):
        self.recording = Recording(folder / "deployment.wav")
        self.events = json.loads((folder / "annotations.json").read_text())
        self.length = int(seconds * RATE)
        self.jitter = Jitter(RATE // 4, seed)

    def __len__(self):
        return len(self.events)

    def _spectrum(self, x):
        frames = np.lib.stride_tricks.sliding_window_view(x, 256)[::96] * np.hanning(256)
        return np.log1p(20 * np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32)

    def __getitem__(self, i):
        event = self.events[i]
        shift, gain = self.jitter()
        start = min(max(event["at"] + shift, 0), self.recording.frames - self.length)
        x = gain * self.recording.read(start, self.length)
        return {"spec": torch.from_numpy(self._spectrum(x)), "label": event["kind"], "gain": gain}


def deploy(folder, calls, rng):
    gap = 4 * RATE
    track = rng.normal(0, 0.02, (calls + 2) * gap)
    events = []
    for k in range(calls):
        kind, at = int(rng.integers(0, 3)), (k + 1) * gap
        t = np.arange(2 * RATE) / RATE
        track[at:at + len(t)] += 0.3 * np.sin(2 * np.pi * (150 + 400 * kind) * t)
        events.append({"at": at, "kind": kind})
    with wave.open(str(folder / "deployment.wav"), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes((np.clip(track, -1, 1) * 32767).astype(np.int16).tobytes())
    (folder / "annotations.json").write_text(json.dumps(events))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(129, 24, 5, stride=2)
        self.fc = nn.Linear(24, 3)

    def forward(self, spec):
        return self.fc(self.conv(spec.transpose(1, 2)).relu().mean(2))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--calls", type=int, default=300)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=15)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        deploy(folder, args.calls, np.random.default_rng(1))
        data = CallWindows(folder)
        loader = DataLoader(data, args.batch, shuffle=True, num_workers=args.workers, persistent_workers=True)
        model = Detector()
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        for epoch in range(args.epochs):
            right = 0
            for batch in loader:
                out = model(batch["spec"])
                loss = nn.functional.cross_entropy(out, batch["label"])
                opt.zero_grad()
                loss.backward()
                opt.step()
                right += int((out.argmax(1) == batch["label"]).sum())
            print(f"epoch {epoch} accuracy {right / len(data):.3f} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
