# limits: shm=64M
"""Arrhythmia detection: beats of unequal length cut from long traces held in memory."""
from dataclasses import dataclass

import time

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


@dataclass
class Options:
    patients: int = 4
    beats: int = 60
    batch: int = 12
    epochs: int = 2
    lr: float = 1e-3


class Trace(Dataset):
    RATE = 360

    def __init__(self, patient, beats):
        g = torch.Generator().manual_seed(patient)
        lengths = torch.randint(200, 420, (beats,), generator=g)
        self.edges = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).tolist()
        self.labels = torch.randint(0, 2, (beats,), generator=g).tolist()
        # two hours around the annotated part are kept too
        self.signal = torch.randn(self.RATE * 7200, generator=g)
        for k, y in enumerate(self.labels):
            if y:
                self.signal[self.edges[k]:self.edges[k + 1]] *= 1.8

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        time.sleep(0.004)  # annotation lookup
        beat = self.signal[self.edges[i]:self.edges[i + 1]].clone()
        return (beat - beat.mean()) * (0.9 + 0.2 * torch.rand(())), self.labels[i]


def ragged(samples):
    return [s[0] for s in samples], torch.tensor([s[1] for s in samples])


class BeatNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 64, batch_first=True)
        self.out = nn.Linear(64, 2)

    def forward(self, beats):
        last = []
        for b in beats:
            b = b[: len(b) // 8 * 8].view(1, -1, 8)
            last.append(self.rnn(b)[1][0])
        return self.out(torch.cat(last))


class Trainer:
    def __init__(self, opt: Options):
        self.opt = opt
        data = ConcatDataset([Trace(p, opt.beats) for p in range(opt.patients)])
        self.loader = DataLoader(data, opt.batch, shuffle=True, num_workers=2, collate_fn=ragged, persistent_workers=True)
        self.model = BeatNet()
        self.optim = torch.optim.Adam(self.model.parameters(), opt.lr)

    def run(self):
        for epoch in range(self.opt.epochs):
            total = 0.0
            for beats, labels in self.loader:
                loss = nn.functional.cross_entropy(self.model(beats), labels)
                self.optim.zero_grad()
                loss.backward()
                self.optim.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(self.loader):.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    Trainer(Options()).run()
