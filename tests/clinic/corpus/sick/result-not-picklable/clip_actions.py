# cause: result-not-picklable
"""Action recognition on short clips of raw frames; clips of different lengths stay a list."""
import os
import tempfile
from collections import defaultdict

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

SETTINGS = dict(clips=160, side=24, actions=4, batch=8, workers=2, lr=2e-3)


class Clip:
    def __init__(self, frames, label, source, info):
        self.frames, self.label, self.source, self.info = frames, label, source, info


class RawVideo:
    def __init__(self, path, side):
        self.path = path
        self.data = np.fromfile(path, dtype=np.uint8).reshape(-1, side, side)

    def clip(self, step):
        return torch.from_numpy(self.data[::step].astype(np.float32) / 255)

    def motion(self):
        stats = defaultdict(lambda: {"frames": 0, "energy": 0.0})
        for k, d in enumerate(np.abs(np.diff(self.data.astype(np.int16), axis=0))):
            cell = stats[k // 4]
            cell["frames"] += 1
            cell["energy"] += float(d.mean())
        return stats


class Actions(Dataset):
    def __init__(self, root, side, step=2):
        self.side, self.step = side, step
        self.files = sorted(os.path.join(root, f) for f in os.listdir(root))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        video = RawVideo(self.files[i], self.side)
        label = int(os.path.basename(video.path)[0])
        return Clip(video.clip(self.step), label, os.path.basename(video.path), {"motion": video.motion()})


def as_list(clips):
    return clips


def film(root, s):
    rng = np.random.default_rng(14)
    for i in range(s["clips"]):
        a = i % s["actions"]
        n = int(rng.integers(16, 40))
        v = rng.integers(0, 40, (n, s["side"], s["side"]), dtype=np.uint8)
        for t in range(n):
            v[t, :, (t * (a + 1)) % s["side"]] = 255
        v.tofile(os.path.join(root, f"{a}_{i:04d}.raw"))


class Net(nn.Module):
    def __init__(self, actions):
        super().__init__()
        self.c = nn.Conv3d(1, 8, 3, stride=2)
        self.o = nn.Linear(8, actions)

    def forward(self, clips):
        return torch.stack([self.o(torch.relu(self.c(c.frames[None, None])).mean((0, 2, 3, 4))) for c in clips])


def run(s):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        film(root, s)
        data = Actions(root, s["side"])
        split = np.random.default_rng(0).permutation(len(data))
        loader = DataLoader(Subset(data, split[:136].tolist()), s["batch"], shuffle=True, num_workers=s["workers"], collate_fn=as_list)
        net = Net(s["actions"])
        opt = torch.optim.Adam(net.parameters(), lr=s["lr"])
        for k, clips in enumerate(loader):
            y = torch.tensor([c.label for c in clips])
            loss = nn.functional.cross_entropy(net(clips), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            busiest = max(clips, key=lambda c: sum(m["energy"] for m in c.info["motion"].values()))
            print(f"{k} {loss.item():.4f} busiest {busiest.source}", flush=True)


if __name__ == "__main__":
    run({**SETTINGS, "workers": int(os.environ.get("W", SETTINGS["workers"]))})
