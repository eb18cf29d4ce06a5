# cause: worker-out-of-memory
# also: transform-bound, too-many-workers
# limits: memory=1G
"""Age regression from T1 brain volumes. Bias field removed in k-space, volume then pooled to 64^3."""
import argparse
import pathlib
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def write_cohort(folder: pathlib.Path, n: int, shape):
    rng = np.random.default_rng(11)
    zz, yy, xx = np.ogrid[-1:1:shape[0] * 1j, -1:1:shape[1] * 1j, -1:1:shape[2] * 1j]
    skull = ((zz ** 2 + yy ** 2 + xx ** 2) < 0.8)
    noise = rng.integers(0, 60, size=shape, dtype=np.int16)
    ages = rng.uniform(20, 80, size=n).astype(np.float32)
    with open(folder / "participants.tsv", "w") as f:
        f.write("participant_id\tage\n")
        for k in range(n):
            vol = noise + (skull * (900 - 6 * ages[k])).astype(np.int16)
            np.save(folder / f"sub-{k:03d}_T1w.npy", vol)
            f.write(f"sub-{k:03d}\t{ages[k]:.1f}\n")


class KSpaceBiasCorrection:
    """Divide by the very low frequencies of the image (homomorphic filter)."""

    def __init__(self, cutoff=0.03):
        self.cutoff = cutoff

    def __call__(self, vol):
        logv = np.log1p(vol.astype(np.float64))
        spectrum = np.fft.fftn(logv)
        fz, fy, fx = (np.fft.fftfreq(n) for n in vol.shape)
        radius = np.sqrt(fz[:, None, None] ** 2 + fy[None, :, None] ** 2 + fx[None, None, :] ** 2)
        low = spectrum * np.exp(-((radius / self.cutoff) ** 2))
        bias = np.fft.ifftn(low).real
        return np.expm1(logv - bias).astype(np.float32)


class BlockPool:
    def __init__(self, out):
        self.out = out

    def __call__(self, vol):
        t = torch.from_numpy(vol)[None, None]
        return torch.nn.functional.adaptive_avg_pool3d(t, self.out)[0]


class T1Cohort(Dataset):
    def __init__(self, folder, participants, steps):
        self.folder = folder
        self.participants = participants
        self.steps = steps

    def __len__(self):
        return len(self.participants)

    def __getitem__(self, idx):
        sub, age = self.participants[idx]
        vol = np.load(self.folder / f"{sub}_T1w.npy")
        for step in self.steps:
            vol = step(vol)
        vol = (vol - vol.mean()) / (vol.std() + 1e-6)
        return vol, torch.tensor([age / 100.0])


class AgeNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv3d(1, 8, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv3d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv3d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(32, 1))


def read_participants(folder):
    lines = (folder / "participants.tsv").read_text().splitlines()[1:]
    return [(s, float(a)) for s, a in (l.split("\t") for l in lines)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--subjects", type=int, default=24)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=2)
    ap.add_argument("--workers", type=int, default=4)
    a = ap.parse_args()
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as d:
        folder = pathlib.Path(d)
        write_cohort(folder, a.subjects, (128, 192, 192))
        people = read_participants(folder)
        steps = [KSpaceBiasCorrection(), BlockPool((64, 64, 64))]
        train = DataLoader(T1Cohort(folder, people[:-4], steps), a.batch_size, shuffle=True,
                           num_workers=a.workers, persistent_workers=True)
        test = DataLoader(T1Cohort(folder, people[-4:], steps), a.batch_size)
        net = AgeNet()
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        for epoch in range(a.epochs):
            net.train()
            for k, (vol, age) in enumerate(train):
                loss = (net(vol) - age).abs().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                print(f"epoch {epoch} it {k} mae {100 * loss.item():.1f} years", flush=True)
            net.eval()
            with torch.no_grad():
                err = [(net(v) - y).abs().mean().item() for v, y in test]
            print(f"epoch {epoch} test mae {100 * sum(err) / len(err):.1f}")


if __name__ == "__main__":
    main()
