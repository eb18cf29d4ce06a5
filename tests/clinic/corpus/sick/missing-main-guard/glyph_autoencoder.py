# cause: missing-main-guard
# also: slow-worker-start
# denoising autoencoder on handwritten-looking glyphs, quick experiment
import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"
side = 40
batch_size = 32
epochs = 8
lr = 1e-3
noise = 0.3


class Glyphs(Dataset):
    """Random pen strokes, drawn when asked for."""

    def __init__(self, n, seed):
        self.n = n
        self.seed = seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng([self.seed, i])
        big = Image.new("L", (side * 4, side * 4))
        pen = ImageDraw.Draw(big)
        pts = rng.uniform(10, side * 4 - 10, (rng.integers(4, 9), 2))
        pen.line([tuple(p) for p in pts], fill=255, width=10, joint="curve")
        for p in pts:
            pen.ellipse([p[0] - 5, p[1] - 5, p[0] + 5, p[1] + 5], fill=255)
        clean = torch.from_numpy(np.array(big.resize((side, side), Image.LANCZOS), dtype=np.float32) / 255)[None]
        noisy = (clean + noise * torch.randn_like(clean)).clamp(0, 1)
        return noisy, clean


class DAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU())
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1))

    def forward(self, x):
        return self.dec(self.enc(x)).sigmoid()


def psnr(a, b):
    return -10 * torch.log10(((a - b) ** 2).mean())


torch.manual_seed(0)
train_data = Glyphs(1600, seed=1)
test_data = Glyphs(200, seed=2)
# CUDA does not like forked workers
train_loader = DataLoader(train_data, batch_size=batch_size, shuffle=True, num_workers=2,
                          multiprocessing_context="spawn", persistent_workers=True,
                          pin_memory=device == "cuda")
test_loader = DataLoader(test_data, batch_size=100)

model = DAE().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=lr)
history = []
print(f"{sum(p.numel() for p in model.parameters())} parameters on {device}", flush=True)

for epoch in range(epochs):
    model.train()
    for step, (noisy, clean) in enumerate(train_loader):
        noisy, clean = noisy.to(device), clean.to(device)
        out = model(noisy)
        loss = nn.functional.mse_loss(out, clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)

    model.eval()
    with torch.no_grad():
        scores = [psnr(model(n.to(device)), c.to(device)).item() for n, c in test_loader]
    history.append(float(np.mean(scores)))
    print(f"epoch {epoch} psnr {history[-1]:.2f} dB", flush=True)

print("best", max(history))
