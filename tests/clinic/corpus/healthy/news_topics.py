"""Topics of short articles of different length: dynamic padding, one contrast article per sample."""
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCAB, TOPICS = 900, 5


class ArticleError(Exception):
    pass


@dataclass
class Batch:
    tokens: torch.Tensor
    contrast: torch.Tensor
    topic: torch.Tensor
    names: list


def parse(line):
    name, topic, body = line.rstrip("\n").split("\t")
    tokens = [int(w) for w in body.split()]
    if not tokens:
        raise ArticleError(f"{name} is empty")
    return name, int(topic), tokens


class Articles(Dataset):
    def __init__(self, path):
        self.items, self.dropped = [], 0
        with open(path) as f:
            for line in f:
                try:
                    self.items.append(parse(line))
                except ArticleError:
                    self.dropped += 1

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        time.sleep(0.002)
        name, topic, tokens = self.items[i]
        n = len(self.items)
        j = next((k % n for k in range(i + 1, i + n) if self.items[k % n][1] != topic and len(self.items[k % n][2]) == len(tokens)), None)
        if j is None:
            j = (i + n // 2) % n
        return name, topic, torch.tensor(tokens), torch.tensor(self.items[j][2])


def collate(samples):
    names, topics, a, b = zip(*samples)
    return Batch(pad_sequence(a, batch_first=True), pad_sequence(b, batch_first=True), torch.tensor(topics), list(names))


class TopicNet(nn.Module):
    def __init__(self, width=1280):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width, padding_idx=0)
        self.body = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Linear(width, TOPICS)

    def forward(self, t):
        return self.out(self.body(self.embed(t).sum(1) / (t > 0).sum(1, keepdim=True).clamp(min=1)))


def press(path, n):
    rng = np.random.default_rng(2)
    with open(path, "w") as f:
        for i in range(n):
            k = i % TOPICS
            words = rng.integers(1 + 150 * k, 300 + 150 * k, int(rng.integers(10, 60)) if i % 100 != 99 else 0)
            f.write(f"a{i}\t{k}\t{' '.join(map(str, words))}\n")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "articles.tsv")
        press(path, 340)
        data = Articles(path)
    print(f"{len(data)} articles, {data.dropped} dropped", flush=True)
    loader = DataLoader(data, 16, shuffle=True, num_workers=2, collate_fn=collate, persistent_workers=True)
    net = TopicNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-4)
    for epoch in range(2):
        start = mark = time.time()
        waited = 0.0
        for b in loader:
            waited += time.time() - mark
            pos, neg = net(b.tokens), net(b.contrast)
            gap = pos.gather(1, b.topic[:, None]) - neg.gather(1, b.topic[:, None])
            loss = nn.functional.cross_entropy(pos, b.topic) + 0.1 * nn.functional.softplus(-gap).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            mark = time.time()
        print(f"epoch {epoch} loss {loss.item():.3f} {time.time() - start:.1f}s data {waited:.1f}s", flush=True)


if __name__ == "__main__":
    main()
