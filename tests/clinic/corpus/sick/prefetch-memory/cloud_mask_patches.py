# cause: prefetch-memory
# also: worker-out-of-memory, too-many-workers
# limits: memory=1G
"""Cloud masks on 4-band patches (38-Cloud style): small encoder-decoder, dice + bce."""
import argparse
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

BANDS = ("red", "green", "blue", "nir")


def synth_scenes(root, n_scenes, side):
    rng = np.random.default_rng(38)
    for s in range(n_scenes):
        coarse = rng.random((side // 32, side // 32)) > 0.65
        mask = np.kron(coarse, np.ones((32, 32), bool))
        for b in BANDS:
            tone = rng.integers(2000, 9000, size=(side, side), dtype=np.uint16)
            tone[mask] += 20000
            np.save(os.path.join(root, f"{b}_{s}.npy"), tone)
        np.save(os.path.join(root, f"gt_{s}.npy"), mask)


class CloudPatches(Dataset):
    def __init__(self, root, scenes, patch, per_scene, augment):
        self.root, self.scenes = root, scenes
        self.patch, self.per_scene, self.augment = patch, per_scene, augment

    def __len__(self):
        return len(self.scenes) * self.per_scene

    def _window(self, name, s, y, x):
        arr = np.load(os.path.join(self.root, f"{name}_{s}.npy"), mmap_mode="r")
        return np.array(arr[y:y + self.patch, x:x + self.patch])

    def __getitem__(self, i):
        s = self.scenes[i // self.per_scene]
        side = np.load(os.path.join(self.root, f"gt_{s}.npy"), mmap_mode="r").shape[0]
        if self.augment:
            y, x = np.random.randint(0, side - self.patch, size=2)
        else:
            y = x = (i % self.per_scene) * (side - self.patch) // self.per_scene
        img = np.stack([self._window(b, s, y, x) for b in BANDS]).astype(np.float32) / 65535.0
        gt = self._window("gt", s, y, x).astype(np.float32)
        if self.augment and np.random.rand() < 0.5:
            img, gt = img[..., ::-1].copy(), gt[..., ::-1].copy()
        return torch.from_numpy(img), torch.from_numpy(gt)[None]


class CloudNet(nn.Module):
    def __init__(self, c=64, depth=3):
        super().__init__()
        self.stem = nn.Conv2d(len(BANDS), c, 4, stride=4)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(8, c), nn.ReLU(inplace=True)) for _ in range(depth))
        self.out = nn.Conv2d(c, 16, 1)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = x + b(x)
        return F.pixel_shuffle(self.out(x), 4)


def dice(logit, gt):
    p = logit.sigmoid()
    return 1 - (2 * (p * gt).sum() + 1) / (p.sum() + gt.sum() + 1)


def get_loader(ds, args, train):
    return DataLoader(ds, batch_size=args.bs, shuffle=train, drop_last=train,
                      num_workers=args.workers if train else 0,
                      prefetch_factor=args.prefetch if train else None,
                      persistent_workers=train)


def main(args):
    torch.manual_seed(args.seed)
    root = tempfile.mkdtemp(prefix="38cloud_")
    try:
        synth_scenes(root, 5, 768)
        train = get_loader(CloudPatches(root, [0, 1, 2, 3], 384, 200, True), args, True)
        valid = get_loader(CloudPatches(root, [4], 384, 8, False), args, False)
        net = CloudNet()
        opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
        for epoch in range(args.epochs):
            t = time.time()
            net.train()
            for step, (img, gt) in enumerate(train):
                logit = net(img)
                loss = F.binary_cross_entropy_with_logits(logit, gt) + dice(logit, gt)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                if step % 10 == 0:
                    print(f"[{epoch}:{step}/{len(train)}] {loss.item():.3f} ({time.time() - t:.1f}s)", flush=True)
            net.eval()
            with torch.no_grad():
                score = np.mean([1 - dice(net(i), g).item() for i, g in valid])
            print(f"epoch {epoch} valid dice {score:.3f}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--bs", type=int, default=8)
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--prefetch", type=int, default=12)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--seed", type=int, default=0)
    main(ap.parse_args())
