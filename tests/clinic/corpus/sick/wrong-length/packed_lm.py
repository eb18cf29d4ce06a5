# cause: wrong-length
"""Byte-level language model over a folder of text files, packed into fixed windows."""
import math
import random
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SEQ = 128


def write_corpus(folder, n=240):
    rnd = random.Random(5)
    vocab = ["".join(rnd.choices("abcdefghijklmnopqrst", k=rnd.randint(2, 9))) for _ in range(500)]
    for k in range(n):
        words = rnd.choices(vocab, k=rnd.randint(90, 260))
        (folder / f"doc{k:04d}.txt").write_text(" ".join(words))


class PackedText(IterableDataset):
    """Streams the documents and cuts them into windows of SEQ + 1 bytes."""

    def __init__(self, files):
        self.files = sorted(files)

    def __len__(self):
        return len(self.files)

    def clean(self, text):
        counts = {}
        for a, b, c in zip(text, text[1:], text[2:]):
            counts[a + b + c] = counts.get(a + b + c, 0) + 1
        keep = {g for g, n in counts.items() if n < 40}
        return "".join(c for i, c in enumerate(text) if i < 2 or text[i - 2 : i + 1] in keep or c != " ")

    def __iter__(self):
        info = get_worker_info()
        files = self.files if info is None else self.files[info.id :: info.num_workers]
        carry = b""
        for path in files:
            text = path.read_text()
            for _ in range(20):
                text = self.clean(text)
            carry += text.encode() + b"\0"
            while len(carry) > SEQ:
                yield torch.tensor(list(carry[: SEQ + 1]), dtype=torch.long)
                carry = carry[SEQ:]


class ByteLM(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(256, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, 256)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def lr_at(step, total):
    return 0.5 * (1 + math.cos(math.pi * min(step / total, 1.0)))


def main(epochs=3):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        write_corpus(folder)
        loader = DataLoader(PackedText(folder.glob("*.txt")), batch_size=16, num_workers=2)
        steps_per_epoch = len(loader)
        model = ByteLM()
        opt = torch.optim.Adam(model.parameters(), lr=4e-3)
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: lr_at(s, epochs * steps_per_epoch))
        for epoch in range(epochs):
            loss_sum = 0.0
            for step, seq in enumerate(loader, 1):
                logits = model(seq[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), seq[:, 1:].flatten())
                opt.zero_grad()
                loss.backward()
                opt.step()
                sched.step()
                loss_sum += loss.item()
                if step % 25 == 0:
                    print(f"  {epoch}:{step}/{steps_per_epoch} lr {sched.get_last_lr()[0]:.2e}", flush=True)
            print(f"epoch {epoch} ppl {math.exp(loss_sum / step):.2f}", flush=True)


if __name__ == "__main__":
    main()
