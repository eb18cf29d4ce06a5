# cause: view-of-large-storage
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PIECES = "PNBRQKpnbrqk"
VOCAB = {c: i + 2 for i, c in enumerate("abcdefgh12345678NBRQKx+#=O-. ")}
BOS, PAD = 1, 0


def game(rng):
    moves = []
    for ply in range(rng.randint(30, 120)):
        piece = rng.choice(["", "", "N", "B", "R", "Q", "K"])
        take = "x" if rng.random() < 0.2 else ""
        moves.append(f"{piece}{take}{rng.choice('abcdefgh')}{rng.randint(1, 8)}{rng.choice(['', '', '', '+'])}")
    return " ".join(f"{i // 2 + 1}.{m}" if i % 2 == 0 else m for i, m in enumerate(moves))


class TokenPacker:
    """Packs games into rows. Sized for the longest packing any tournament dump may need."""

    def __init__(self, row=256, max_rows=20_000):
        self.row, self.max_rows = row, max_rows

    def pack(self, games):
        rows = torch.full((self.max_rows, self.row), PAD, dtype=torch.int32)
        flat, n = rows.view(-1), 0
        for g in games:
            ids = [BOS] + [VOCAB.get(c, PAD) for c in g]
            flat[n:n + len(ids)] = torch.tensor(ids, dtype=torch.int32)
            n += len(ids)
        return rows[: n // self.row]


class GameStream(IterableDataset):
    def __init__(self, packs, games_per_pack, seed):
        self.packs, self.games_per_pack, self.seed = packs, games_per_pack, seed
        self.packer = TokenPacker()

    def __iter__(self):
        info = get_worker_info()
        me, n = (info.id, info.num_workers) if info else (0, 1)
        for k in range(me, self.packs, n):
            rng = random.Random(self.seed * 7919 + k)
            yield self.packer.pack(game(rng) for _ in range(self.games_per_pack))


class MoveLM(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.emb = nn.Embedding(len(VOCAB) + 2, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, len(VOCAB) + 2)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids[:, :-1]))
        return nn.functional.cross_entropy(self.out(h).flatten(0, 1), ids[:, 1:].flatten().long(), ignore_index=PAD)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    lm = MoveLM()
    opt = torch.optim.Adam(lm.parameters(), 3e-3)
    for epoch in range(3):
        stream = DataLoader(GameStream(packs=90, games_per_pack=24, seed=epoch), batch_size=None, num_workers=2)
        t0, rows, tot = time.time(), 0, 0.0
        for ids in stream:
            loss = lm(ids[:8, :64])
            opt.zero_grad()
            loss.backward()
            opt.step()
            rows += len(ids)
            tot += loss.item()
        print(f"epoch {epoch} nll {tot / 90:.3f} rows {rows} {time.time() - t0:.2f}s", flush=True)


if __name__ == "__main__":
    main()
