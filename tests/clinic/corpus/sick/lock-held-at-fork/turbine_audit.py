# cause: lock-held-at-fork
# Wind turbine fault detection from vibration windows. Every run leaves an audit trail (plant regulation): one compressed file per segment.
import dataclasses
import gzip
import json
import os
import shutil
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Config:
    turbines: int = 24
    window: int = 2048
    per_turbine: int = 40
    batch: int = 32
    workers: int = 3
    epochs: int = 3
    lr: float = 3e-3


class AuditTrail:
    def __init__(self, folder, segment_events=50000):
        self.folder = folder
        self.segment_events = segment_events
        self.events = []
        self.segment = 0
        self._mutex = threading.Lock()
        self._wake = threading.Event()
        threading.Thread(target=self._archive_forever, daemon=True).start()

    def record(self, kind, **fields):
        with self._mutex:
            self.events.append({"t": time.time(), "kind": kind, **fields})
            if len(self.events) >= self.segment_events:
                self._wake.set()

    def seal(self):
        """Closes the current segment; it is written in the background."""
        self._wake.set()

    def _archive_forever(self):
        while True:
            self._wake.wait()
            with self._mutex:
                self._wake.clear()
                path = os.path.join(self.folder, f"audit-{self.segment:05d}.json.gz")
                with gzip.open(path, "wt", compresslevel=9) as f:
                    for e in self.events:
                        f.write(json.dumps(e) + "\n")
                self.events = []
                self.segment += 1


class VibrationWindows(Dataset):
    def __init__(self, cfg, audit):
        self.cfg, self.audit = cfg, audit
        rng = np.random.default_rng(5)
        t = np.arange(cfg.window) / 512
        self.signals, self.faulty = [], []
        for turbine in range(cfg.turbines):
            for k in range(cfg.per_turbine):
                bad = int(rng.random() < 0.3)
                x = np.sin(2 * np.pi * (20 + turbine) * t) + 0.3 * rng.standard_normal(cfg.window)
                if bad:
                    x[:: 97] += 3.0
                if rng.random() < 0.02:
                    x[rng.integers(0, cfg.window - 64):][:64] = 0.0     # sensor drop-out
                self.signals.append(x.astype(np.float32))
                self.faulty.append(bad)
                for channel in range(24):
                    audit.record("ingest", turbine=turbine, window=k, channel=channel, rms=float(np.sqrt((x ** 2).mean())), checksum=hash(x.tobytes()))

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, i):
        x = self.signals[i]
        if (x == 0).sum() > 32:
            self.audit.record("dropout", window=i)
            x = np.where(x == 0, np.median(x), x)
        spec = np.log1p(np.abs(np.fft.rfft(x * np.hanning(len(x)))))
        return torch.from_numpy(spec[:1024].astype(np.float32)), self.faulty[i]


def build(cfg, audit):
    data = VibrationWindows(cfg, audit)
    loader = DataLoader(data, cfg.batch, shuffle=True, num_workers=cfg.workers, persistent_workers=True, drop_last=True)
    net = torch.nn.Sequential(torch.nn.Linear(1024, 96), torch.nn.GELU(), torch.nn.Linear(96, 2))
    return loader, net, torch.optim.Adam(net.parameters(), cfg.lr)


def train(cfg, folder):
    torch.manual_seed(3)
    audit = AuditTrail(folder)
    loader, net, opt = build(cfg, audit)
    audit.seal()                                   # ingestion is a segment of its own
    for epoch in range(cfg.epochs):
        losses = []
        for spec, y in loader:
            loss = F.cross_entropy(net(spec), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        audit.record("epoch", number=epoch, loss=float(np.mean(losses)))
        print(f"[{epoch}] loss {np.mean(losses):.4f} over {len(losses)} steps", flush=True)


if __name__ == "__main__":
    where = tempfile.mkdtemp(prefix="audit")
    try:
        train(Config(), where)
    finally:
        shutil.rmtree(where, ignore_errors=True)
