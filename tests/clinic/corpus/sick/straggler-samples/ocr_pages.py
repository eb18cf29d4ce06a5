# cause: straggler-samples
# also: too-few-workers
"""Line recognition on scanned pages; some pages come from the slow archive."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class PageArchive:
    def __init__(self, pages, box=54):
        self.slow = set(range(7, pages, box))  # one page of every box is stored off-site

    def fetch(self, page):
        time.sleep(0.5 if page in self.slow else 0.0045)
        return np.random.default_rng(page).integers(0, 255, (32, 160), dtype=np.uint8)


class Lines(Dataset):
    def __init__(self, pages, archive):
        self.pages, self.archive = pages, archive

    def __len__(self):
        return self.pages

    def __getitem__(self, i):
        img = self.archive.fetch(i).astype(np.float32) / 255
        chars = torch.from_numpy(np.random.default_rng(i + 10_000).integers(1, 30, 10))
        return torch.from_numpy(img)[None], chars


class CTCNet(nn.Module):
    def __init__(self, classes=30):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 3, (2, 2), 1), nn.ReLU(), nn.Conv2d(8, 16, 3, (2, 2), 1), nn.ReLU())
        self.out = nn.Linear(16 * 8, classes)

    def forward(self, x):
        h = self.conv(x)
        return self.out(h.permute(3, 0, 1, 2).flatten(2)).log_softmax(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pages", type=int, default=600)
    ap.add_argument("--batch-size", type=int, default=6)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Lines(args.pages, PageArchive(args.pages)), batch_size=args.batch_size, num_workers=2)
    model = CTCNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin, last = time.time(), time.time()
    worst = 0.0
    for step, (img, chars) in enumerate(loader):
        worst = max(worst, time.time() - last)
        logp = model(img)
        t = torch.full((len(img),), logp.shape[0])
        loss = nn.functional.ctc_loss(logp, chars, t, torch.full((len(img),), chars.shape[1]))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f} longest wait {worst:.2f}s", flush=True)
        last = time.time()
    print(f"epoch took {time.time() - begin:.1f}s")


if __name__ == "__main__":
    main()
