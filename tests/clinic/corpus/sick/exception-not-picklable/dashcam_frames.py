# cause: exception-not-picklable
# also: dataset-raises
"""Steering angle regression from packed dashcam frames."""
import logging
import struct
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

log = logging.getLogger("dashcam")


@dataclass
class Config:
    drives: int = 4
    frames_per_drive: int = 160
    height: int = 66
    width: int = 120
    batch_size: int = 16
    num_workers: int = 2
    epochs: int = 6
    lr: float = 1e-3
    codec: str = "zframe"


def record_drives(root, cfg):
    """The recorder writes [length, crc, deflated frame] after [length, crc, ...] and an index of offsets."""
    rng = np.random.default_rng(5)
    for d in range(cfg.drives):
        offsets, angles = [], []
        with open(root / f"drive{d}.bin", "wb") as out:
            for k in range(cfg.frames_per_drive):
                angle = np.sin(k / 15 + d)
                frame = rng.integers(0, 40, (cfg.height, cfg.width, 3), dtype=np.uint8)
                col = int((angle + 1) / 2 * (cfg.width - 12))
                frame[30:, col:col + 10] = 220
                blob = zlib.compress(frame.tobytes(), 1)
                crc = zlib.crc32(blob)
                if d == 1 and k == 77:            # the car lost power here
                    blob = blob[: len(blob) // 2] + b"\0" * (len(blob) - len(blob) // 2)
                offsets.append(out.tell())
                angles.append(angle)
                out.write(struct.pack("<II", len(blob), crc) + blob)
        np.savez(root / f"drive{d}.npz", offsets=offsets, angles=np.float32(angles))


def make_codec(name, height, width):
    """Each codec brings its own error class, as the C++ one does."""

    class CodecError(ValueError):
        def __init__(self, offset, why):
            super().__init__(f"{name}: frame at byte {offset}: {why}")
            self.offset = offset

    def decode(buf, offset):
        size, crc = struct.unpack_from("<II", buf, 0)
        blob = buf[8:8 + size]
        if zlib.crc32(blob) != crc:
            raise CodecError(offset, "checksum mismatch")
        return np.frombuffer(zlib.decompress(blob), np.uint8).reshape(height, width, 3)

    return decode


class DriveDataset(Dataset):
    def __init__(self, stem: Path, cfg):
        meta = np.load(stem.with_suffix(".npz"))
        self.path = stem.with_suffix(".bin")
        self.offsets, self.angles = meta["offsets"], meta["angles"]
        self.decode = make_codec(cfg.codec, cfg.height, cfg.width)

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, i):
        start = int(self.offsets[i])
        end = int(self.offsets[i + 1]) if i + 1 < len(self.offsets) else None
        with open(self.path, "rb") as f:
            f.seek(start)
            buf = f.read() if end is None else f.read(end - start)
        frame = self.decode(buf, start).astype(np.float32) / 127.5 - 1
        angle = self.angles[i]
        if torch.rand(()) < 0.5:
            frame, angle = frame[:, ::-1], -angle
        return torch.from_numpy(frame.transpose(2, 0, 1).copy()), torch.tensor([angle])


class Trainer:
    def __init__(self, cfg, root):
        self.cfg = cfg
        drives = [DriveDataset(root / f"drive{d}", cfg) for d in range(cfg.drives)]
        self.train_loader = DataLoader(ConcatDataset(drives[:-1]), cfg.batch_size, shuffle=True,
                                       num_workers=cfg.num_workers, persistent_workers=True)
        self.val_loader = DataLoader(drives[-1], cfg.batch_size)
        self.net = nn.Sequential(
            nn.Conv2d(3, 24, 5, 2), nn.ELU(), nn.Conv2d(24, 36, 5, 2), nn.ELU(), nn.Conv2d(36, 48, 3, 2), nn.ELU(),
            nn.AdaptiveAvgPool2d((2, 8)), nn.Flatten(), nn.Linear(48 * 16, 64), nn.ELU(), nn.Linear(64, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), cfg.lr)

    def fit(self):
        step = 0
        for epoch in range(self.cfg.epochs):
            for frames, angles in self.train_loader:
                loss = nn.functional.smooth_l1_loss(self.net(frames), angles)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                step += 1
                if step % 10 == 0:
                    log.info("step %d loss %.4f", step, loss.item())
            log.info("epoch %d validation mae %.4f", epoch, self.validate())

    @torch.no_grad()
    def validate(self):
        err = [(self.net(f) - a).abs().mean().item() for f, a in self.val_loader]
        return sum(err) / len(err)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory() as tmp:
        record_drives(Path(tmp), Config())
        Trainer(Config(), Path(tmp)).fit()
