# cause: slow-shutdown
# also: straggler-samples
# arguments: --max-steps 6
"""Action recognition on clips, shortest clips first; used with --max-steps as a smoke test."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ClipReader:
    """Stands for the archive server: reading costs time in proportion to the length of the clip."""

    def __init__(self, seconds_per_frame):
        self.seconds_per_frame = seconds_per_frame

    def frames(self, clip_id, count, keep=8):
        time.sleep(count * self.seconds_per_frame)
        rs = np.random.RandomState(clip_id)
        return rs.normal(clip_id % 3, 1, (keep, 3, 24, 24)).astype(np.float32)


class Clips(Dataset):
    def __init__(self, lengths, reader):
        self.lengths, self.reader = sorted(lengths), reader

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        frames = self.reader.frames(i, self.lengths[i])
        return torch.from_numpy(frames), i % 3


class ClipNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv3d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(4), nn.Flatten())
        self.fc = nn.Linear(16 * 64, 3)

    def forward(self, x):
        return self.fc(self.conv(x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=60)
    ap.add_argument("--max-steps", type=int, default=None)
    ap.add_argument("--batch-size", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    lengths = [10 + i for i in range(24)] + [4000 + 50 * i for i in range(args.clips - 24)]
    loader = DataLoader(Clips(lengths, ClipReader(0.002)), batch_size=args.batch_size, num_workers=2)
    model = ClipNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.time()
    for step, (x, y) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step} loss {loss.item():.3f}", flush=True)
        if args.max_steps and step >= args.max_steps:
            break
    print(f"trained {step} steps in {time.time() - begin:.1f}s")


if __name__ == "__main__":
    main()
