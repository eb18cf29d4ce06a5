"""Seq2seq-like addition with a curriculum over the number of digits."""
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Curriculum:
    def __init__(self, start=1, stop=4):
        self.digits, self.stop = start, stop

    def step(self, accuracy):
        if accuracy > 0.2 and self.digits < self.stop:
            self.digits += 1


class Additions(Dataset):
    """Random sums with as many digits as the curriculum says at the time the epoch begins."""

    WIDTH = 4

    def __init__(self, curriculum, per_epoch=4800):
        self.curriculum, self.per_epoch = curriculum, per_epoch

    def __len__(self):
        return self.per_epoch

    def __getitem__(self, i):
        top = 10 ** self.curriculum.digits
        a, b = torch.randint(top, (2,)).tolist()
        text = f"{a:0{self.WIDTH}d}+{b:0{self.WIDTH}d}"
        answer = f"{a + b:0{self.WIDTH + 1}d}"[::-1]
        one_hot = torch.zeros(len(text), 11)
        for k, c in enumerate(text):
            one_hot[k, 10 if c == "+" else int(c)] = 1
        return one_hot, torch.tensor([int(c) for c in answer])


class Adder(nn.Module):
    def __init__(self, width=288):
        super().__init__()
        self.inp = nn.Linear(11, width)
        self.pos = nn.Parameter(torch.randn(9, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, width * 3, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(9 * width, 50)

    def forward(self, x):
        return self.out(self.body(self.inp(x) + self.pos).flatten(1)).view(-1, 5, 10)


def train(epochs=5):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    curriculum = Curriculum()
    # workers are started anew for each epoch, that is how they learn of the new difficulty
    loader = DataLoader(Additions(curriculum), batch_size=96, num_workers=1)
    net = Adder()
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    for epoch in range(epochs):
        begin = t = time.time()
        wait = right = seen = 0.0
        for x, y in loader:
            wait += time.time() - t
            logits = net(x)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (logits.argmax(-1) == y).float().mean(1).sum().item()
            seen += len(y)
            t = time.time()
        acc = right / seen
        print(f"epoch {epoch} digits {curriculum.digits} loss {loss.item():.3f} acc {acc:.3f} "
              f"{t - begin:.1f}s data {wait:.2f}s", flush=True)
        curriculum.step(acc)


if __name__ == "__main__":
    train()
