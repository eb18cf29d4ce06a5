"""Order of the abbey from its registers. Scribes' files come in two encodings; what neither fits is marked and has no weight."""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

ORDERS = {"benedictine": "ora labora regula abbas", "cistercian": "vinea aqua grangia conversus", "carthusian": "cella silentium eremus prior"}


class Unreadable(ValueError):
    """A register that cannot be decoded."""


def fill(root: Path, count: int):
    rng = np.random.default_rng(5)
    index = []
    for k in range(count):
        order = list(ORDERS)[rng.integers(3)]
        words = ORDERS[order].split() + "anno domini fratres terra et in de".split()
        text = " ".join(words[j] + ("é" if rng.random() < 0.1 else "") for j in rng.integers(0, len(words), 120))
        raw = text.encode("cp1250" if k % 40 == 7 else "utf-8")
        if k in (91, 250):
            raw = b"\x00REG" + raw
        (root / f"reg{k:05d}.txt").write_bytes(raw)
        index.append({"file": f"reg{k:05d}.txt", "order": order})
    (root / "index.json").write_text(json.dumps(index))


def decode(raw: bytes) -> str:
    if raw.startswith(b"\x00"):
        raise Unreadable("binary header")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("cp1250")


class Registers(Dataset):
    def __init__(self, root: Path, length=320):
        self.root, self.length = root, length
        rows = json.loads((root / "index.json").read_text())
        self.files = np.array([r["file"] for r in rows])
        self.orders = np.array([sorted(ORDERS).index(r["order"]) for r in rows])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        time.sleep(0.002)
        codes, weight = np.zeros(self.length, np.int64), 1.0
        try:
            text = decode((self.root / self.files[i]).read_bytes())
        except Unreadable:
            weight = 0.0
        else:
            chars = [min(ord(c), 383) for c in text.lower()][: self.length]
            codes[: len(chars)] = chars
        return torch.from_numpy(codes), int(self.orders[i]), weight


class CharNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.emb = nn.Embedding(384, 48, padding_idx=0)
        self.conv = nn.ModuleList(nn.Conv1d(48, 96, k) for k in (3, 4, 5))
        self.out = nn.Linear(288, classes)

    def forward(self, x):
        h = self.emb(x).transpose(1, 2)
        return self.out(torch.cat([c(h).amax(-1) for c in self.conv], 1))


def run(model, opt, loader):
    total = loss_sum = 0.0
    for x, y, w in loader:
        loss = (F.cross_entropy(model(x), y, reduction="none") * w).sum() / w.sum().clamp(min=1)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        loss_sum += loss.item() * w.sum().item()
        total += w.sum().item()
    return loss_sum / total, int(total)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--registers", type=int, default=480)
    ap.add_argument("--epochs", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        fill(Path(tmp), args.registers)
        loader = DataLoader(Registers(Path(tmp)), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
        model = CharNet(len(ORDERS))
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        for epoch in range(args.epochs):
            loss, used = run(model, opt, loader)
            print(f"epoch {epoch}: loss {loss:.4f}, {used} registers used", flush=True)


if __name__ == "__main__":
    main()
