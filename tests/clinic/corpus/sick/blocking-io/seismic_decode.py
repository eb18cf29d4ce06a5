# cause: blocking-io
"""Phase picking; traces are unpacked by the vendor's command line decoder, kept running per process."""
import base64
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DECODER = textwrap.dedent("""
    import sys, base64, zlib, struct
    for line in sys.stdin:
        path = line.strip()
        with open(path, 'rb') as f:
            head, body = f.read(4), f.read()
        if head != b'SEIS':
            continue
        print(base64.b64encode(zlib.decompress(body)).decode(), flush=True)
""")


class TraceDecoder:
    def __init__(self, script):
        self.script = script
        self._proc = None

    def _start(self):
        self._proc = subprocess.Popen([sys.executable, "-S", self.script], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)

    def __call__(self, path):
        if self._proc is None:
            self._start()
        self._proc.stdin.write(path + "\n")
        self._proc.stdin.flush()
        return np.frombuffer(base64.b64decode(self._proc.stdout.readline()), dtype=np.float32)


class Traces(Dataset):
    def __init__(self, catalogue, decoder):
        self.catalogue, self.decoder = catalogue, decoder

    def __len__(self):
        return len(self.catalogue)

    def __getitem__(self, i):
        path, arrival = self.catalogue[i]
        x = self.decoder(path).astype(np.float64)
        for _ in range(5):
            spec = np.fft.rfft(x)
            spec[:4] = 0
            x = np.fft.irfft(spec, n=len(x))
        x = x / (np.abs(x).max() + 1e-9)
        return torch.from_numpy(x.astype(np.float32))[None], torch.tensor(arrival / len(x), dtype=torch.float32)


def archive(folder, n, length=2048):
    import zlib
    rs = np.random.RandomState(0)
    rows = []
    for i in range(n):
        arrival = int(rs.randint(200, length - 200))
        x = rs.normal(0, .1, length)
        x[arrival:] += np.exp(-np.arange(length - arrival) / 300) * np.sin(np.arange(length - arrival) / 5)
        path = os.path.join(folder, f"{i:05d}.seis")
        head = b"SEIS" if i != 171 else b"SEI2"
        with open(path, "wb") as f:
            f.write(head + zlib.compress(x.astype(np.float32).tobytes(), 1))
        rows.append((path, arrival))
    return rows


def train(rows, script):
    loader = DataLoader(Traces(rows, TraceDecoder(script)), batch_size=12, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Conv1d(1, 16, 15, 4), nn.ReLU(), nn.Conv1d(16, 32, 9, 4), nn.ReLU(),
                          nn.Flatten(), nn.LazyLinear(128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())
    model(torch.zeros(2, 1, 2048))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.l1_loss(model(x).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            print(f"step {step}/{len(loader)} mae {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(12)
    torch.set_num_threads(1)
    work = tempfile.mkdtemp(prefix="seis")
    try:
        script = os.path.join(work, "decoder.py")
        with open(script, "w") as f:
            f.write(DECODER)
        train(archive(work, 360), script)
        print("done")
    finally:
        shutil.rmtree(work, ignore_errors=True)
