"""Phoneme recogniser on variable-length utterances: bucketed batches, padding collate, CTC."""
import time
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

Batch = namedtuple("Batch", "frames frame_lens phones phone_lens")


class Utterances(Dataset):
    MELS = 40

    def __init__(self, n=640, phones=24, seed=9):
        g = np.random.default_rng(seed)
        self.lengths = g.integers(40, 220, n)
        self.targets = [g.integers(1, phones, max(3, l // 16)) for l in self.lengths]
        self.proto = g.normal(size=(phones, self.MELS)).astype(np.float32)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        n, target = int(self.lengths[i]), self.targets[i]
        path = np.repeat(target, -(-n // len(target)))[:n]
        frames = self.proto[path] + np.random.normal(0, 0.5, (n, self.MELS)).astype(np.float32)
        width = np.random.randint(0, 6)                       # frequency mask
        at = np.random.randint(0, self.MELS - width)
        frames[:, at:at + width] = 0
        return torch.from_numpy(frames), torch.from_numpy(target)


class BucketBatches(Sampler):
    """Batches of similar length under a frame budget, in a new order every epoch."""

    def __init__(self, lengths, max_frames, seed=0):
        self.lengths, self.max_frames, self.seed, self.epoch = np.asarray(lengths), max_frames, seed, 0
        self._plan = self._make(0)

    def _make(self, epoch):
        g = np.random.default_rng((self.seed, epoch))
        order = np.argsort(self.lengths, kind="stable")
        batches, current = [], []
        for i in order:
            if current and (len(current) + 1) * self.lengths[i] > self.max_frames:
                batches.append(current)
                current = []
            current.append(int(i))
        batches.append(current)
        g.shuffle(batches)
        return batches

    def set_epoch(self, epoch):
        self._plan = self._make(epoch)

    def __len__(self):
        return len(self._plan)

    def __iter__(self):
        return iter(self._plan)


class PadCollate:
    def __call__(self, items):
        frames, phones = zip(*items)
        return Batch(pad_sequence(frames, batch_first=True), torch.tensor([len(f) for f in frames]),
                     torch.cat(phones), torch.tensor([len(p) for p in phones]))


class Recogniser(nn.Module):
    def __init__(self, mels=40, hidden=160, phones=24):
        super().__init__()
        self.front = nn.Conv1d(mels, hidden, 5, 2, 2)
        self.rnn = nn.GRU(hidden, hidden, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, phones)

    def forward(self, frames, lens):
        h = self.front(frames.transpose(1, 2)).relu().transpose(1, 2)
        h, _ = self.rnn(h)
        return self.out(h).log_softmax(-1), (lens + 1) // 2


class Trainer:
    def __init__(self, epochs=3):
        self.epochs = epochs
        data = Utterances()
        self.sampler = BucketBatches(data.lengths, 2400)
        self.loader = DataLoader(data, batch_sampler=self.sampler, collate_fn=PadCollate(), num_workers=1,
                                 prefetch_factor=4, persistent_workers=True)
        self.model = Recogniser()
        self.opt = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.ctc = nn.CTCLoss(zero_infinity=True)

    def epoch(self, n):
        self.sampler.set_epoch(n)
        begin = t = time.time()
        wait = total = seen = 0.0
        for b in self.loader:
            wait += time.time() - t
            logp, lens = self.model(b.frames, b.frame_lens)
            loss = self.ctc(logp.transpose(0, 1), b.phones, lens, b.phone_lens)
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5)
            self.opt.step()
            total += loss.item() * len(lens)
            seen += len(lens)
            t = time.time()
        print(f"epoch {n} ctc {total / seen:.3f} utterances {int(seen)} {t - begin:.1f}s data {wait:.2f}s", flush=True)

    def fit(self):
        for n in range(self.epochs):
            self.epoch(n)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    Trainer().fit()
