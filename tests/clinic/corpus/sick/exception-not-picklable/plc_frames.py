# cause: exception-not-picklable
"""Fault classifier for a conveyor line, trained on captured controller frames."""
import atexit
import os
import shutil
import struct
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HEADER = struct.Struct(">HBBH")
STATUS = {0: "Ok", 1: "IllegalFunction", 2: "IllegalAddress", 4: "DeviceFailure", 6: "DeviceBusy"}
FAULTS = {code: type(name, (ConnectionError,), {"code": code}) for code, name in STATUS.items() if code}


@dataclass
class Config:
    frames: int = 480
    registers: int = 96
    classes: int = 5
    batch: int = 20
    epochs: int = 2
    workers: int = 2
    lr: float = 3e-3


def checksum(data: bytes) -> int:
    crc = 0xFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0xA001 if crc & 1 else crc >> 1
    return crc


def capture(path: str, cfg: Config) -> None:
    rng = np.random.default_rng(55)
    with open(path, "wb") as out:
        for k in range(cfg.frames):
            label = int(rng.integers(cfg.classes))
            wave = 2000 + 600 * np.sin(np.arange(cfg.registers) * (label + 1) / 9) + rng.normal(0, 90, cfg.registers)
            body = wave.astype(">u2").tobytes()
            status = 6 if k == 300 else 0
            frame = HEADER.pack(k, status, label, len(body)) + body
            out.write(frame + struct.pack("<H", checksum(frame)))


class FrameReader:
    def __init__(self, path: str, registers: int):
        self.path = path
        self.size = HEADER.size + 2 * registers + 2

    def count(self) -> int:
        return os.path.getsize(self.path) // self.size

    def read(self, k: int):
        with open(self.path, "rb") as f:
            f.seek(k * self.size)
            frame = f.read(self.size)
        time.sleep(0.002)
        crc, = struct.unpack("<H", frame[-2:])
        if checksum(frame[:-2]) != crc:
            raise ValueError(f"frame {k}: checksum")
        _, status, label, n = HEADER.unpack_from(frame)
        if status:
            raise FAULTS[status](f"controller answered {status} in frame {k}")
        return np.frombuffer(frame, ">u2", n // 2, HEADER.size).astype(np.float32), label


class Frames(Dataset):
    def __init__(self, reader: FrameReader):
        self.reader = reader

    def __len__(self):
        return self.reader.count()

    def __getitem__(self, k):
        regs, label = self.reader.read(k)
        spectrum = np.abs(np.fft.rfft(regs - regs.mean()))
        return torch.from_numpy(np.concatenate([regs / 4000, spectrum / spectrum.max()]).astype(np.float32)), label


def run(cfg: Config) -> None:
    folder = tempfile.mkdtemp(prefix="plc_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "line3.cap")
    capture(path, cfg)
    data = Frames(FrameReader(path, cfg.registers))
    loader = DataLoader(data, cfg.batch, shuffle=True, num_workers=cfg.workers, persistent_workers=True,
                        generator=torch.Generator().manual_seed(12))
    width = cfg.registers + cfg.registers // 2 + 1
    model = nn.Sequential(nn.Linear(width, 128), nn.GELU(), nn.Linear(128, 64), nn.GELU(), nn.Linear(64, cfg.classes))
    opt = torch.optim.Adam(model.parameters(), cfg.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.epochs * len(loader))
    for epoch in range(cfg.epochs):
        hits = seen = 0
        for step, (x, y) in enumerate(loader):
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            hits += (out.argmax(1) == y).sum().item()
            seen += len(y)
            if step % 4 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f} acc {hits / seen:.3f}", flush=True)


if __name__ == "__main__":
    run(Config())
