# cause: stale-dataset-in-workers
# Self-training on leaf disease photos: teacher relabels the unlabelled pool after every round.
import io

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageEnhance
from torch.utils.data import DataLoader, Dataset


def jpeg(label, rng):
    a = rng.normal(90, 18, (96, 96, 3))
    a[..., 1] += 70
    for _ in range(label * 6):
        y, x = rng.integers(4, 88, 2)
        a[y:y + 8, x:x + 8] = (120, 60, 20)
    buf = io.BytesIO()
    Image.fromarray(a.clip(0, 255).astype(np.uint8)).save(buf, "JPEG", quality=90)
    return buf.getvalue()


class LeafPool(Dataset):
    IGNORE = -1

    def __init__(self, photos, truth, labelled):
        self.photos = photos
        self.targets = [t if k < labelled else self.IGNORE for k, t in enumerate(truth)]
        self.weights = [1.0 if k < labelled else 0.0 for k in range(len(truth))]

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, k):
        im = Image.open(io.BytesIO(self.photos[k])).convert("RGB").resize((160, 160), Image.BICUBIC)
        im = ImageEnhance.Contrast(im).enhance(1.3).rotate(float(torch.rand(()) * 20), Image.BILINEAR)
        x = torch.from_numpy(np.asarray(im, dtype=np.float32).transpose(2, 0, 1) / 255.0)[:, ::2, ::2]
        return k, x, self.targets[k], self.weights[k]

    def relabel(self, index, labels, confidence, floor=0.6):
        """Adopt the teacher's opinion where it is sure enough."""
        changed = 0
        for k, y, c in zip(index.tolist(), labels.tolist(), confidence.tolist()):
            if c >= floor and self.targets[k] != y:
                self.targets[k], self.weights[k] = y, c
                changed += 1
        return changed


def student():
    return nn.Sequential(nn.Conv2d(3, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
                         nn.Linear(16, 3))


def train_round(net, opt, loader):
    used = 0
    for _, x, y, w in loader:
        keep = y >= 0
        if not keep.any():
            continue
        used += int(keep.sum())
        ce = nn.functional.cross_entropy(net(x[keep]), y[keep], reduction="none")
        loss = (ce * w[keep].float()).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return used


@torch.no_grad()
def teacher_pass(net, loader):
    ks, ys, cs = [], [], []
    for k, x, _, _ in loader:
        c, y = net(x).softmax(1).max(1)
        ks.append(k), ys.append(y), cs.append(c)
    return torch.cat(ks), torch.cat(ys), torch.cat(cs)


def main():
    torch.manual_seed(8)
    rng = np.random.default_rng(8)
    truth = rng.integers(0, 3, 450).tolist()
    pool = LeafPool([jpeg(t, rng) for t in truth], truth, labelled=120)
    loader = DataLoader(pool, batch_size=50, shuffle=True, num_workers=2, persistent_workers=True)
    net = student()
    opt = torch.optim.Adam(net.parameters(), 4e-3)
    for rnd in range(4):
        used = train_round(net, opt, loader)
        idx, y, c = teacher_pass(net, loader)
        n = pool.relabel(idx, y, c, floor=0.4)
        acc = (y == torch.tensor(truth)[idx]).float().mean()
        print(f"round {rnd}: trained on {used}, relabelled {n}, teacher accuracy {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
