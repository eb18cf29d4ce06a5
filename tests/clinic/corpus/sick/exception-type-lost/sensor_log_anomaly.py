# cause: exception-type-lost
"""Anomaly detection in turbine sensor logs: autoencoder on windows; records that fail their checksum are set aside."""
import argparse
import logging
import os
import struct
import tempfile
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
CHANNELS, LENGTH = 6, 200
FRAME = struct.Struct("<II")


class RecordError(ValueError):
    """Base of everything that can be wrong with a record."""


class ChecksumMismatch(RecordError):
    def __init__(self, record, expected, found):
        super().__init__(f"record {record}: checksum {found:08x}, expected {expected:08x}")
        self.record, self.expected, self.found = record, expected, found


def write_log(path, records, damaged, seed=6):
    rng = np.random.default_rng(seed)
    t = np.arange(LENGTH)
    with open(path, "wb") as stream:
        for r in range(records):
            phase = rng.uniform(0, 6, (CHANNELS, 1))
            wave = np.sin(t / (8 + np.arange(CHANNELS)[:, None]) + phase) + rng.normal(0, 0.1, (CHANNELS, LENGTH))
            payload = zlib.compress((wave * 1000).astype("<i2").tobytes(), 6)
            crc = zlib.crc32(payload)
            if r in damaged:
                payload = payload[:40] + bytes([payload[40] ^ 0x20]) + payload[41:]
            stream.write(FRAME.pack(len(payload), crc) + payload)


class TurbineLog(Dataset):
    def __init__(self, path):
        self.path = path
        self.offsets = []
        with open(path, "rb") as stream:
            while head := stream.read(FRAME.size):
                self.offsets.append(stream.tell() - FRAME.size)
                stream.seek(FRAME.unpack(head)[0], os.SEEK_CUR)
        self.offsets = np.array(self.offsets)

    def __len__(self):
        return len(self.offsets)

    def payload(self, record):
        with open(self.path, "rb") as stream:
            stream.seek(self.offsets[record])
            size, crc = FRAME.unpack(stream.read(FRAME.size))
            data = stream.read(size)
        found = zlib.crc32(data)
        if found != crc:
            raise ChecksumMismatch(record, crc, found)
        return zlib.decompress(data)

    def __getitem__(self, record):
        wave = np.frombuffer(self.payload(record), dtype="<i2").reshape(CHANNELS, LENGTH).astype(np.float32) / 1000
        smooth = np.stack([np.convolve(c, np.hanning(7) / 3, mode="same") for c in wave]).astype(np.float32)
        trend = np.apply_along_axis(lambda c: np.polyval(np.polyfit(np.arange(LENGTH), c, 2), np.arange(LENGTH)), 1, smooth)
        return torch.from_numpy((smooth - trend).astype(np.float32))


class AutoEncoder(nn.Module):
    def __init__(self, code=24):
        super().__init__()
        self.down = nn.Sequential(nn.Conv1d(CHANNELS, 16, 9, 4, 4), nn.ReLU(), nn.Conv1d(16, code, 5, 5))
        self.up = nn.Sequential(nn.ConvTranspose1d(code, 16, 5, 5), nn.ReLU(), nn.ConvTranspose1d(16, CHANNELS, 4, 4))

    def forward(self, x):
        return self.up(self.down(x))


class Quarantine:
    def __init__(self):
        self.records = {}

    def add(self, error):
        if self.records.setdefault(error.record, error) is error:
            logging.warning("set aside record %d (%s)", error.record, error)


def good_batches(loader, quarantine):
    """The batches of an epoch; a batch with a damaged record is left out and the record noted."""
    stream = iter(loader)
    while True:
        try:
            yield next(stream)
        except StopIteration:
            return
        except RecordError as error:
            quarantine.add(error)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("-j", "--workers", type=int, default=2)
    return parser.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="turbine-") as folder:
        path = os.path.join(folder, "unit7.log")
        write_log(path, args.records, damaged={412, 977})
        loader = DataLoader(TurbineLog(path), batch_size=20, shuffle=True, num_workers=args.workers, persistent_workers=args.workers > 0)
        model, quarantine = AutoEncoder(), Quarantine()
        optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
        for epoch in range(args.epochs):
            begin, losses = time.time(), []
            for x in good_batches(loader, quarantine):
                loss = nn.functional.mse_loss(model(x), x)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
            logging.info("epoch %d: %d batches, loss %.4f, %.1f s", epoch, len(losses), np.mean(losses), time.time() - begin)
        logging.info("quarantine: %s", sorted(quarantine.records))


if __name__ == "__main__":
    main()
