# cause: thread-pool-after-fork
"""Direction of arrival from an 8-microphone array. One wav file per microphone, so a recording is eight reads."""
import json
import tempfile
import wave
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Params:
    mics: int = 8
    sr: int = 16000
    samples: int = 6400
    recordings: int = 150
    sectors: int = 12
    io_threads: int = 4
    batch_size: int = 10
    workers: int = 2
    epochs: int = 10
    lr: float = 1e-3


def simulate(root: Path, p: Params):
    rng = np.random.default_rng(3)
    angles = rng.uniform(0, 2 * np.pi, p.recordings)
    mic_angles = np.arange(p.mics) * 2 * np.pi / p.mics
    for r, a in enumerate(angles):
        src = np.convolve(rng.standard_normal(p.samples + 64), np.hanning(9), "same")
        for m in range(p.mics):
            delay = int(round(16 + 12 * np.cos(a - mic_angles[m])))
            x = src[delay:delay + p.samples] + 0.1 * rng.standard_normal(p.samples)
            with wave.open(str(root / f"r{r:04d}_m{m}.wav"), "wb") as w:
                w.setparams((1, 2, p.sr, 0, "NONE", ""))
                w.writeframes((x * 3000).clip(-32768, 32767).astype("<i2").tobytes())
    sectors = (angles / (2 * np.pi) * p.sectors).astype(int)
    (root / "labels.json").write_text(json.dumps(sectors.tolist()))


def read_wav(path):
    with wave.open(str(path), "rb") as w:
        return np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32) / 32768


class ArrayRecordings(Dataset):
    def __init__(self, root, p: Params, rows):
        self.root, self.p, self.rows = Path(root), p, list(rows)
        self.sectors = json.loads((self.root / "labels.json").read_text())
        self.pool = ThreadPoolExecutor(p.io_threads)
        self.gains = self._measure_gains()

    def _paths(self, r):
        return [self.root / f"r{r:04d}_m{m}.wav" for m in range(self.p.mics)]

    def _measure_gains(self):
        """Every microphone has its own sensitivity; estimate it from the first few recordings."""
        level = np.zeros(self.p.mics)
        for r in self.rows[:10]:
            level += [x.std() for x in self.pool.map(read_wav, self._paths(r))]
        return torch.from_numpy(level.mean() / level).float()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        chans = np.stack(list(self.pool.map(read_wav, self._paths(r))))
        x = torch.from_numpy(chans) * self.gains[:, None]
        spec = torch.fft.rfft(x.unfold(1, 512, 256) * torch.hann_window(512))
        phase = torch.angle(spec * spec[:1].conj())[..., 8:136].mean(1)
        return phase, self.sectors[r]


class DoaNet(nn.Sequential):
    def __init__(self, p):
        super().__init__(nn.Conv1d(p.mics, 64, 5, padding=2), nn.ReLU(), nn.Conv1d(64, 64, 5, stride=2), nn.ReLU(),
                         nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Dropout(0.1), nn.Linear(512, p.sectors))


def main():
    p = Params()
    print(asdict(p), flush=True)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        simulate(root, p)
        cut = int(0.8 * p.recordings)
        train = DataLoader(ArrayRecordings(root, p, range(cut)), p.batch_size, shuffle=True,
                           num_workers=p.workers, persistent_workers=True)
        test = DataLoader(ArrayRecordings(root, p, range(cut, p.recordings)), p.batch_size)
        net = DoaNet(p)
        opt = torch.optim.Adam(net.parameters(), p.lr)
        sched = torch.optim.lr_scheduler.StepLR(opt, 4, 0.5)
        for epoch in range(p.epochs):
            net.train()
            tot = 0.0
            for phase, sector in train:
                loss = nn.functional.cross_entropy(net(phase), sector)
                opt.zero_grad()
                loss.backward()
                opt.step()
                tot += loss.item()
            sched.step()
            net.eval()
            with torch.no_grad():
                ok = sum((net(ph).argmax(1) == s).sum().item() for ph, s in test)
            print(f"epoch {epoch:2d}  loss {tot / len(train):.3f}  acc {ok / len(test.dataset):.3f}", flush=True)


if __name__ == "__main__":
    main()
