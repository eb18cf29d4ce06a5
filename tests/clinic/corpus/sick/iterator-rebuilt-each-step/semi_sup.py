# cause: iterator-rebuilt-each-step
"""Semi-supervised tabular classifier: labelled epochs with a consistency term on unlabelled rows."""
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COLUMNS = 40


class Rows(Dataset):
    def __init__(self, folder, labelled):
        self.paths = sorted(Path(folder).glob("lab*.txt" if labelled else "un*.txt"))
        self.labelled = labelled

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        cells = self.paths[i].read_text().split(",")
        x = np.array([float(c) for c in cells[:COLUMNS]])
        cross = np.sort(np.outer(x, x).ravel())
        for _ in range(8):
            cross = np.sort(np.tanh(cross + 0.01 * np.roll(cross, 7)))
        x = torch.tensor(np.concatenate([x, cross[::20]]), dtype=torch.float32)
        return (x, int(cells[-1])) if self.labelled else (x, x + 0.05 * torch.randn_like(x))


def draw_batch(loader):
    for batch in loader:
        return batch


class Trainer:
    def __init__(self, model, labelled, unlabelled, weight=0.5):
        self.model, self.labelled, self.unlabelled, self.weight = model, labelled, unlabelled, weight
        self.opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    def consistency(self):
        weak, strong = draw_batch(self.unlabelled)
        with torch.no_grad():
            target = self.model(weak).softmax(-1)
        return nn.functional.cross_entropy(self.model(strong), target)

    def fit(self, epochs):
        for epoch in range(epochs):
            t0 = time.time()
            for x, y in self.labelled:
                loss = nn.functional.cross_entropy(self.model(x), y) + self.weight * self.consistency()
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            print(f"epoch {epoch} loss {loss.item():.3f} {time.time() - t0:.1f}s", flush=True)


def write_rows(folder):
    r = random.Random(0)
    for kind, n in (("lab", 160), ("un", 320)):
        for i in range(n):
            y = r.randrange(3)
            cells = [f"{r.gauss(y * 0.5, 1):.4f}" for _ in range(COLUMNS)]
            Path(folder, f"{kind}{i:04d}.txt").write_text(",".join(cells + [str(y)]))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_rows(folder)
        labelled = DataLoader(Rows(folder, True), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)
        unlabelled = DataLoader(Rows(folder, False), batch_size=16, shuffle=True, num_workers=2)
        model = nn.Sequential(nn.Linear(COLUMNS + 80, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3))
        Trainer(model, labelled, unlabelled).fit(2)
