"""Online handwriting: variable length pen strokes, unreadable ones are left out by the collate function, broken blocks are skipped by type."""
import random
import zlib

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset


class BrokenBlock(RuntimeError):
    """A stored block does not inflate."""


def pen(seed, label):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(600, 1400))
    t = np.linspace(0, 6.28, n)
    xy = np.c_[np.sin(t * (1 + label)), np.cos(t)] + 0.05 * rng.standard_normal((n, 2))
    return xy.astype("<f4")


class Strokes(Dataset):
    def __init__(self, n, seed=0):
        rnd = random.Random(seed)
        self.rows = []
        for k in range(n):
            label = rnd.randrange(3)
            blob = zlib.compress(pen((seed, k), label).tobytes(), 9)
            if k % 260 == 130:
                blob = blob[: len(blob) // 2]
            if k % 90 == 45:
                blob = zlib.compress(b"")
            self.rows.append((blob, label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        blob, label = self.rows[i]
        try:
            xy = np.frombuffer(zlib.decompress(blob), "<f4").reshape(-1, 2)
        except zlib.error as e:
            raise BrokenBlock(f"block {i}: {e}") from None
        if not len(xy):
            return None
        for _ in range(40):                                       # smooth the pen jitter
            xy = np.concatenate([xy[:1], (xy[:-2] + 2 * xy[1:-1] + xy[2:]) / 4, xy[-1:]])
        step = np.hypot(*np.diff(xy, axis=0).T)
        s = np.concatenate([[0], np.cumsum(step)])
        even = np.linspace(0, s[-1], 20 + len(xy) // 40)          # equal distances along the path
        pts = np.c_[np.interp(even, s, xy[:, 0]), np.interp(even, s, xy[:, 1])]
        for a in np.linspace(0, 3.1, 160):                        # search for the flattest orientation
            rot = xy @ np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]], np.float32)
            rot[:, 1].std()
        return torch.from_numpy(np.diff(pts, axis=0).astype(np.float32)) * 10, label


def collate(items):
    items = sorted((x for x in items if x is not None), key=lambda x: -len(x[0]))
    strokes, labels = zip(*items)
    return pad_sequence(strokes, batch_first=True), torch.tensor([len(s) for s in strokes]), torch.tensor(labels)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(2, 32, batch_first=True), nn.Linear(32, 3)

    def forward(self, x, n):
        _, h = self.rnn(pack_padded_sequence(x, n, batch_first=True))
        return self.out(h[-1])


def main():
    torch.manual_seed(0)
    loader = DataLoader(Strokes(500), 20, shuffle=True, num_workers=2, collate_fn=collate, persistent_workers=True)
    net = Reader()
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    for epoch in range(4):
        it, skipped, right, n = iter(loader), 0, 0, 0
        for _ in range(len(loader)):
            try:
                x, length, y = next(it)
            except BrokenBlock:
                skipped += 1
                continue
            out = net(x, length)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad(); loss.backward(); opt.step()
            right += int((out.argmax(1) == y).sum()); n += len(y)
        for _ in it:
            pass
        print(f"epoch {epoch}: {right}/{n}, {skipped} batches skipped", flush=True)


if __name__ == "__main__":
    main()
