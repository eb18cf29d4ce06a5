# cause: handle-shared-across-fork
# also: blocking-io
"""Sea floor type from sonar pings.  Pings are unpacked by the vendor's decoder, a program that answers over its pipes."""
import argparse
import os
import subprocess
import sys
import tempfile
import textwrap

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DECODER = textwrap.dedent('''
    import struct, sys, zlib
    path = sys.argv[1]
    src, dst = sys.stdin.buffer, sys.stdout.buffer
    with open(path, "rb") as f:
        while True:
            req = src.read(12)
            if len(req) < 12:
                break
            off, size = struct.unpack("<QI", req)
            f.seek(off)
            raw = zlib.decompress(f.read(size))
            dst.write(struct.pack("<I", len(raw)))
            dst.flush()
            dst.write(raw)
            dst.flush()
''')


class Decoder:
    """Request: offset and size.  Answer: length and samples."""

    def __init__(self, program, archive):
        self.proc = subprocess.Popen([sys.executable, "-S", "-E", program, archive], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ping(self, offset, size):
        self.proc.stdin.write(int(offset).to_bytes(8, "little") + int(size).to_bytes(4, "little"))
        self.proc.stdin.flush()
        n = int.from_bytes(self.proc.stdout.read(4), "little")
        return np.frombuffer(self.proc.stdout.read(n), dtype="<i2")

    def close(self):
        self.proc.stdin.close()
        self.proc.wait(timeout=5)


def write_archive(path, n):
    import zlib
    rng = np.random.default_rng(6)
    index = []
    with open(path, "wb") as f:
        for k in range(n):
            label = int(rng.integers(3))
            t = np.arange(4000)
            echo = np.exp(-((t - 1500) / (80 + 120 * label)) ** 2) * 9000 + rng.normal(0, 200, 4000)
            blob = zlib.compress(np.concatenate([[k], echo]).astype("<i2").tobytes())
            index.append((f.tell(), len(blob), label))
            f.write(blob)
    return index


class Pings(Dataset):
    def __init__(self, decoder, index):
        self.decoder, self.index = decoder, index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, k):
        offset, size, label = self.index[k]
        raw = self.decoder.ping(offset, size)
        echo = raw[1:].astype(np.float32) / 9000
        env = np.abs(np.convolve(echo, np.hanning(65) / 32, mode="same"))[::8]
        return {"echo": torch.from_numpy(env.astype(np.float32)), "serial": int(raw[0]), "want": k, "label": label}


class FloorNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 8, 15, 4), nn.ReLU(), nn.AdaptiveAvgPool1d(24), nn.Flatten(), nn.Linear(192, 3))

    def forward(self, x):
        return self.net(x.unsqueeze(1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pings", type=int, default=600)
    ap.add_argument("--epochs", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory(prefix="sonar_") as folder:
        program, archive = os.path.join(folder, "decode.py"), os.path.join(folder, "survey.pings")
        with open(program, "w") as f:
            f.write(DECODER)
        index = write_archive(archive, args.pings)
        decoder = Decoder(program, archive)
        data = Pings(decoder, index)
        print("first ping", data[0]["serial"], "length", len(data[0]["echo"]), flush=True)
        loader = DataLoader(data, batch_size=20, shuffle=True, num_workers=4, persistent_workers=True)
        net = FloorNet()
        opt = torch.optim.Adam(net.parameters(), lr=2e-3)
        for epoch in range(args.epochs):
            mixed = 0
            for b in loader:
                loss = nn.functional.cross_entropy(net(b["echo"]), b["label"])
                opt.zero_grad()
                loss.backward()
                opt.step()
                mixed += int((b["serial"] != b["want"]).sum())
            print(f"epoch {epoch} loss {loss.item():.4f} serial mismatches {mixed}", flush=True)
        decoder.close()


if __name__ == "__main__":
    main()
