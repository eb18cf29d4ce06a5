# cause: stale-dataset-in-workers, sample-mutated-in-place
# also: stale-dataset-in-workers, sample-mutated-in-place
"""Image denoising; the noise level falls during training."""
import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset


def paint(seed, size=64):
    rs = np.random.RandomState(seed)
    im = Image.new("L", (size, size), 30)
    d = ImageDraw.Draw(im)
    for _ in range(8):
        x, y = rs.randint(0, size, 2)
        d.ellipse((x, y, x + rs.randint(4, 24), y + rs.randint(4, 24)), fill=int(rs.randint(60, 255)))
    return np.asarray(im, dtype=np.float32) / 255


class NoiseSchedule:
    def __init__(self, high, low, epochs):
        self.levels = np.geomspace(high, low, epochs)

    def level(self, epoch):
        return float(self.levels[min(epoch, len(self.levels) - 1)])


class DenoisePairs(Dataset):
    def __init__(self, count, sigma):
        self.images = [torch.from_numpy(paint(i)) for i in range(count)]
        self.sigma = sigma

    def __len__(self):
        return len(self.images)

    def equalise(self, image):
        for _ in range(4):
            flat = image.flatten()
            rank = flat.argsort().argsort().float() / flat.numel()
            image = 0.8 * image + 0.2 * rank.view_as(image)
        return image

    def __getitem__(self, i):
        clean = self.images[i]
        clean -= clean.mean()
        clean *= 1.5
        guide = self.equalise(clean)
        noisy = clean + self.sigma * torch.randn_like(clean)
        return torch.stack([noisy, guide]), clean[None]


class Denoiser(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1),
                                 nn.ReLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x):
        return x[:, :1] - self.net(x)


def main(epochs=4):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    schedule = NoiseSchedule(0.6, 0.05, epochs)
    data = DenoisePairs(112, schedule.level(0))
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    model = Denoiser()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        loader.dataset.sigma = schedule.level(epoch)
        noise, spread = [], []
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            noise.append((x[:, :1] - y).std().item())
            spread.append(y.std().item())
        print(f"epoch {epoch} sigma {schedule.level(epoch):.3f} seen {np.mean(noise):.3f} "
              f"target std {np.mean(spread):.3f} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
