# limits: nofile=256
"""Crust inspection in a bakery; difficult batches are kept and looked at again."""
import collections
import itertools

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 4


class Loaves(Dataset):
    """A belt picture is wide; one loaf of it is a sample."""

    def __init__(self, belts, per_belt):
        rng = np.random.default_rng(8)
        self.belts = torch.from_numpy(rng.random((belts, 3, 40, 40 * per_belt), dtype=np.float32))
        self.labels = torch.from_numpy(rng.integers(0, CLASSES, (belts, per_belt)))
        self.per_belt = per_belt

    def __len__(self):
        return self.labels.numel()

    def __getitem__(self, index):
        belt, slot = divmod(index, self.per_belt)
        loaf = self.belts[belt, :, :, slot * 40:(slot + 1) * 40].clone()
        for _ in range(2):
            loaf = nn.functional.avg_pool2d(nn.functional.pad(loaf[None], (1, 1, 1, 1), mode="reflect"), 3, stride=1)[0]
        if torch.rand(()) < 0.5:
            loaf = loaf.flip(2)
        return {"loaf": loaf, "label": self.labels[belt, slot], "belt": belt}


class Replay:
    """The hardest batches of late; handed out again now and then."""

    def __init__(self, size):
        self.kept = collections.deque(maxlen=size)

    def offer(self, batch, loss, threshold):
        if loss >= threshold:
            self.kept.append({k: v.clone() for k, v in batch.items()})

    def draw(self, step):
        return self.kept[step % len(self.kept)] if self.kept else None


class LabelHistory:
    def __init__(self):
        self.labels, self.hits = [], []

    def update(self, batch, logits):
        self.labels.append(batch["label"].clone())
        self.hits.append(logits.argmax(1) == batch["label"])

    def report(self):
        labels, hits = torch.cat(self.labels), torch.cat(self.hits).float()
        self.labels.clear()
        self.hits.clear()
        return [round(hits[labels == c].mean().item(), 3) for c in range(CLASSES)]


def cycle(loader):
    for epoch in itertools.count():
        for batch in loader:
            yield epoch, batch


class Inspector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
                                  nn.MaxPool2d(2), nn.Conv2d(32, 48, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten())
        self.head = nn.Linear(48 * 9, CLASSES)

    def forward(self, loaf):
        return self.head(self.body(loaf))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Loaves(40, 50), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    model, replay, history = Inspector(), Replay(300), LabelHistory()
    opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 400)

    def learn(batch):
        logits = model(batch["loaf"])
        loss = nn.functional.cross_entropy(logits, batch["label"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return logits.detach(), loss.item()

    for step, (epoch, batch) in enumerate(itertools.islice(cycle(loader), 400)):
        logits, loss = learn(batch)
        history.update(batch, logits)
        replay.offer(batch, loss, 1.3)
        if step % 10 == 9 and (again := replay.draw(step)) is not None:
            learn(again)
        schedule.step()
        if step % 100 == 99:
            print(f"epoch {epoch} step {step + 1} loss {loss:.4f} kept {len(replay.kept)} by class {history.report()}", flush=True)


if __name__ == "__main__":
    main()
