"""Cell counting with elastic noise; random sources are set up per loader process."""
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Perturb:
    def __init__(self):
        self.rng = None

    def reseed(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, image):
        if self.rng is None:
            self.reseed(torch.initial_seed() % 2 ** 32)
        image = image * self.rng.uniform(0.8, 1.2)
        shift = self.rng.integers(-6, 7, size=2)
        image = np.roll(image, shift, axis=(0, 1))
        return image + self.rng.normal(0, .05, image.shape)


class Cells(Dataset):
    def __init__(self, n, size=112):
        rs = np.random.RandomState(0)
        yy, xx = np.mgrid[0:size, 0:size]
        self.images, self.counts = [], []
        for _ in range(n):
            k = int(rs.randint(3, 20))
            img = np.zeros((size, size))
            for cx, cy in rs.randint(5, size - 5, (k, 2)):
                img += np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 18)
            self.images.append(img.astype(np.float32))
            self.counts.append(k)
        self.perturb = Perturb()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = self.perturb(self.images[i].copy())
        img -= img.mean()
        img /= img.std() + 1e-6
        for _ in range(2):
            spec = np.fft.rfft2(img)
            spec[40:-40] *= 0.3
            img = np.fft.irfft2(spec, s=img.shape)
        return torch.from_numpy(img.astype(np.float32))[None], torch.tensor(self.counts[i] / 20)


def per_process(worker_id):
    info = get_worker_info()
    info.dataset.perturb.reseed(info.seed)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Cells(80), batch_size=8, shuffle=True, num_workers=2, worker_init_fn=per_process, persistent_workers=True)
    model = nn.Sequential(nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(32, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        err = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            err += loss.item() / len(loader)
        print(f"epoch {epoch} mse {err:.4f}", flush=True)


if __name__ == "__main__":
    main()
