"""Character LM over a packed token stream, text shards divided among the workers."""
import argparse
import pathlib
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WORDS = "the of and river mountain light carries stone over under slowly bright cold warm north wind sea".split()


def write_corpus(root, shards=8, docs=50):
    rng = random.Random(4)
    for s in range(shards):
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(20, 120))) for _ in range(docs)]
        (root / f"shard-{s:03d}.txt").write_text("\n".join(lines))


class PackedText(IterableDataset):
    """Reads shards, encodes each document, concatenates with EOS and cuts blocks of fixed length."""

    EOS = 0

    def __init__(self, root, block):
        self.files = sorted(pathlib.Path(root).glob("shard-*.txt"))
        self.block = block
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def _my_files(self):
        order = list(self.files)
        random.Random(self.epoch).shuffle(order)
        info = get_worker_info()
        return order if info is None else order[info.id::info.num_workers]

    def _encode(self, line):
        return [max(1, ord(c) - 95) for c in line.lower()] + [self.EOS]

    def __iter__(self):
        buffer = []
        for path in self._my_files():
            with open(path) as fh:
                for line in fh:
                    buffer.extend(self._encode(line.rstrip("\n")))
                    while len(buffer) > self.block:
                        piece, buffer = buffer[:self.block + 1], buffer[self.block:]
                        yield torch.from_numpy(np.array(piece, dtype=np.int64))


class TinyGPT(nn.Module):
    def __init__(self, vocab=64, d=128, layers=2, block=128):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(block, d)
        layer = nn.TransformerEncoderLayer(d, 4, 4 * d, batch_first=True, norm_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(d, vocab)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(block))

    def forward(self, x):
        h = self.tok(x) + self.pos.weight[:x.shape[1]]
        return self.out(self.body(h, mask=self.mask[:x.shape[1], :x.shape[1]]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--block", type=int, default=128)
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        root = pathlib.Path(tmp)
        write_corpus(root)
        data = PackedText(root, a.block)
        # fresh workers each epoch pick up the new shard order
        loader = DataLoader(data, batch_size=32, num_workers=2, drop_last=False)
        model = TinyGPT(block=a.block)
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        tokens = 0
        for epoch in range(a.epochs):
            data.set_epoch(epoch)
            begin = t = time.time()
            wait = 0.0
            for step, block in enumerate(loader):
                wait += time.time() - t
                x, y = block[:, :-1], block[:, 1:]
                loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
                opt.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                tokens += y.numel()
                if step % 20 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
                t = time.time()
            print(f"epoch {epoch} done: {step + 1} steps, {tokens} tokens, {t - begin:.1f}s, data {wait:.2f}s", flush=True)


if __name__ == "__main__":
    main()
