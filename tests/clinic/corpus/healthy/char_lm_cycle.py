"""Character transformer, step-based training over a cycling loader with periodic held-out loss."""
import random
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


@dataclass
class LMConfig:
    block_size: int = 64
    n_embd: int = 128
    n_layer: int = 3
    batch_size: int = 24
    max_steps: int = 160
    eval_interval: int = 40
    lr: float = 1e-3
    num_workers: int = 1


def synth_corpus(n_sentences=3000, seed=1):
    rng = random.Random(seed)
    subj = ["the sailor", "a child", "our captain", "the old dog", "my sister"]
    verb = ["saw", "painted", "followed", "lost", "sang to"]
    obj = ["the moon", "a red boat", "some bread", "the harbour", "nobody"]
    return [f"{rng.choice(subj)} {rng.choice(verb)} {rng.choice(obj)}.\n" for _ in range(n_sentences)]


class CharVocab:
    def __init__(self, text):
        self.chars = sorted(set(text))
        self.stoi = {c: i for i, c in enumerate(self.chars)}

    def __len__(self):
        return len(self.chars)

    def encode(self, s):
        return torch.tensor([self.stoi[c] for c in s])


class BlockDataset(Dataset):
    def __init__(self, ids, block_size, stride=8):
        self.ids, self.block, self.stride = ids, block_size, stride

    def __len__(self):
        return (len(self.ids) - self.block - 1) // self.stride

    def __getitem__(self, i):
        start = i * self.stride
        chunk = self.ids[start:start + self.block + 1]
        return chunk[:-1].clone(), chunk[1:].clone()


class SentenceStream(IterableDataset):
    """Held-out text in blocks; block k goes to worker k mod n."""

    def __init__(self, sentences, vocab, block_size):
        self.text, self.vocab, self.block = "".join(sentences), vocab, block_size

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        n_blocks = (len(self.text) - 1) // self.block
        for k in range(first, n_blocks, step):
            ids = self.vocab.encode(self.text[k * self.block:(k + 1) * self.block + 1])
            yield ids[:-1], ids[1:]


def cycle(loader):
    while True:
        yield from loader


class CharTransformer(nn.Module):
    def __init__(self, n_vocab, cfg):
        super().__init__()
        self.wte = nn.Embedding(n_vocab, cfg.n_embd)
        self.wpe = nn.Parameter(torch.zeros(cfg.block_size, cfg.n_embd))
        layer = nn.TransformerEncoderLayer(cfg.n_embd, 4, 4 * cfg.n_embd, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, cfg.n_layer, enable_nested_tensor=False)
        self.head = nn.Linear(cfg.n_embd, n_vocab)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(cfg.block_size))

    def forward(self, x, y):
        h = self.blocks(self.wte(x) + self.wpe, mask=self.mask, is_causal=True)
        return F.cross_entropy(self.head(h).flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate_loss(model, loader):
    model.eval()
    nll, chars = 0.0, 0
    for x, y in loader:
        nll += model(x, y).item() * y.numel()
        chars += y.numel()
    model.train()
    return nll / chars, chars


def main():
    cfg = LMConfig()
    torch.manual_seed(1337)
    sentences = synth_corpus()
    vocab = CharVocab("".join(sentences))
    train_ids = vocab.encode("".join(sentences[:2700]))
    train_loader = DataLoader(BlockDataset(train_ids, cfg.block_size), batch_size=cfg.batch_size, shuffle=True,
                              num_workers=cfg.num_workers, persistent_workers=True)
    val_loader = DataLoader(SentenceStream(sentences[2700:], vocab, cfg.block_size),
                            batch_size=cfg.batch_size, num_workers=2, persistent_workers=True)
    model = CharTransformer(len(vocab), cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    batches = cycle(train_loader)
    t0 = time.time()
    for step in range(1, cfg.max_steps + 1):
        xb, yb = next(batches)
        loss = model(xb, yb)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % cfg.eval_interval == 0:
            val, chars = estimate_loss(model, val_loader)
            print(f"step {step}: train {loss.item():.3f} val {val:.3f} over {chars} chars "
                  f"({(time.time() - t0) / step * 1e3:.0f} ms/step)", flush=True)


if __name__ == "__main__":
    main()
