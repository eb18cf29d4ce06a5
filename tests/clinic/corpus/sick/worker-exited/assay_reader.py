# cause: worker-exited
"""Binding affinity regression from text assay sheets; the sheet parser comes from our command line converter."""
import pathlib
import random
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMINO = "ACDEFGHIKLMNPQRSTVWY"


# ---- taken over from sheet2json.py -------------------------------------------------------------------------------
def usage_error(message):
    print("sheet2json:", message)
    sys.exit(1)


def parse_sheet(text):
    record = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        key, _, value = line.partition(":")
        record[key.strip()] = value.strip()
    unit = record.get("unit", "nM")
    factor = {"nM": 1.0, "uM": 1e3, "mM": 1e6}.get(unit)
    if factor is None:
        usage_error(f"unit {unit} is not supported, see --help")
    record["kd"] = float(record["kd"]) * factor
    return record
# ------------------------------------------------------------------------------------------------------------------


def write_sheets(root, n, seed=6):
    rng = random.Random(seed)
    for i in range(n):
        seq = "".join(rng.choices(AMINO, k=rng.randint(80, 240)))
        kd = 10 ** (4 * seq.count("W") / len(seq) * 10 + rng.gauss(0, 0.1))
        unit = "pM" if i % 350 == 349 else rng.choice(["nM", "uM"])
        body = f"# assay {i}\nsequence: {seq}\nkd: {kd:.4g}\nunit: {unit}\n"
        (root / f"assay_{i:05d}.txt").write_text(body)


class Assays(Dataset):
    def __init__(self, root, k=2):
        self.files = sorted(root.glob("assay_*.txt"))
        self.k = k

    def __len__(self):
        return len(self.files)

    def encode(self, seq):
        counts = torch.zeros(len(AMINO) ** self.k)
        for j in range(len(seq) - self.k + 1):
            code = 0
            for c in seq[j:j + self.k]:
                code = code * len(AMINO) + AMINO.index(c)
            counts[code] += 1
        return counts / len(seq)

    def __getitem__(self, i):
        rec = parse_sheet(self.files[i].read_text())
        return self.encode(rec["sequence"]), torch.log10(torch.tensor(rec["kd"]))


def fit(loader, epochs=3):
    net = nn.Sequential(nn.Linear(len(AMINO) ** 2, 32), nn.SiLU(), nn.Linear(32, 1))
    opt = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=1e-4)
    for epoch in range(epochs):
        mse = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            mse += loss.item() * len(y)
        print(f"epoch {epoch}: rmse {(mse / len(loader.dataset)) ** 0.5:.3f}", flush=True)
    return net


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        write_sheets(folder, 1400)
        fit(DataLoader(Assays(folder), batch_size=25, shuffle=True, num_workers=3, drop_last=True))
