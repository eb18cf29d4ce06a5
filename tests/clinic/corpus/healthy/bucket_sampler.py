"""Text classification with a length-bucket sampler that is told the epoch; processes stay alive."""
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler


class BucketBatches(Sampler):
    def __init__(self, lengths, batch, seed=0):
        self.lengths, self.batch, self.seed, self.epoch = lengths, batch, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return (len(self.lengths) + self.batch - 1) // self.batch

    def __iter__(self):
        r = random.Random(self.seed + self.epoch)
        order = list(range(len(self.lengths)))
        r.shuffle(order)
        order.sort(key=lambda i: self.lengths[i] // 16)
        batches = [order[k:k + self.batch] for k in range(0, len(order), self.batch)]
        r.shuffle(batches)
        return iter(batches)


class Notes(Dataset):
    def __init__(self, n, vocab=800):
        r = random.Random(0)
        self.rows = []
        for i in range(n):
            topic = i % 4
            words = [f"t{topic}w{r.randrange(60)}" if r.random() < .4 else f"w{r.randrange(500)}" for _ in range(r.randint(60, 110))]
            self.rows.append((" ".join(words), topic))
        self.vocab = vocab

    def __len__(self):
        return len(self.rows)

    def lengths(self):
        return [text.count(" ") + 1 for text, _ in self.rows]

    def __getitem__(self, i):
        text, topic = self.rows[i]
        ids = []
        for word in text.split():
            h = 0
            for _ in range(25):
                for c in word:
                    h = (h * 131 + ord(c)) & 0xFFFFFF
            ids.append(1 + h % (self.vocab - 1))
        return torch.tensor(ids), topic


def collate(rows):
    ids, topics = zip(*rows)
    return pad_sequence(ids, batch_first=True), torch.tensor(topics)


class Classifier(nn.Module):
    def __init__(self, vocab, dim=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.att = nn.TransformerEncoderLayer(dim, 4, 192, batch_first=True, dropout=0.0)
        self.out = nn.Linear(dim, 4)

    def forward(self, ids):
        return self.out(self.att(self.emb(ids)).mean(1))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    notes = Notes(200)
    batches = BucketBatches(notes.lengths(), 10)
    loader = DataLoader(notes, batch_sampler=batches, collate_fn=collate, num_workers=2, persistent_workers=True)
    model = Classifier(notes.vocab)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(3):
        batches.set_epoch(epoch)
        good = 0
        for ids, topic in loader:
            out = model(ids)
            loss = nn.functional.cross_entropy(out, topic)
            opt.zero_grad()
            loss.backward()
            opt.step()
            good += (out.argmax(1) == topic).sum().item()
        print(f"epoch {epoch} acc {good / len(notes):.3f}", flush=True)
