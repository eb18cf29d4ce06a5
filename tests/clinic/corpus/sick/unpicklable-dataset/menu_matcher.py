# cause: unpicklable-dataset
# also: missing-main-guard
"""Match dish names to menu sections with character n-grams.  Converted from an exploratory notebook."""
import collections
import functools
import random
import tempfile
import os
import re
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(12)
torch.manual_seed(12)

SECTIONS = {
    "soup": ["broth", "bisque", "chowder", "gazpacho", "minestrone"],
    "grill": ["steak", "skewer", "ribs", "burger", "chop"],
    "sweet": ["tart", "sorbet", "pudding", "eclair", "brownie"],
    "drink": ["spritz", "lassi", "espresso", "cordial", "cider"],
}
ADJECTIVES = ["smoked", "old-style", "spicy", "cold", "house", "royal", "green", "golden", "crispy", "slow"]


def write_menus(folder, count):
    for k in range(count):
        lines = []
        for _ in range(6):
            section = random.choice(list(SECTIONS))
            words = random.sample(ADJECTIVES, 2) + [random.choice(SECTIONS[section])]
            lines.append(section + "\t" + " ".join(words) + " with " + " ".join(random.choices(ADJECTIVES, k=20)))
        with open(os.path.join(folder, f"menu{k:03d}.txt.z"), "wb") as f:
            f.write(zlib.compress("\n".join(lines).encode()))


def ngrams(text, sizes=(2, 3, 4)):
    text = "^" + re.sub(r"[^a-z ]", "", text.lower()) + "$"
    for n in sizes:
        for i in range(len(text) - n + 1):
            yield text[i:i + n]


class Dishes(Dataset):
    def __init__(self, folder, buckets=4096):
        self.files = sorted(os.path.join(folder, n) for n in os.listdir(folder))
        self.buckets = buckets
        self.classes = SECTIONS.keys()
        self.read = functools.lru_cache(maxsize=32)(self._read)

    @staticmethod
    def _read(path):
        with open(path, "rb") as f:
            return zlib.decompress(f.read()).decode().splitlines()

    def __len__(self):
        return 6 * len(self.files)

    def __getitem__(self, i):
        section, dish = self.read(self.files[i // 6])[i % 6].split("\t")
        x = torch.zeros(self.buckets)
        counts = collections.Counter(zlib.crc32(g.encode()) % self.buckets for g in ngrams(dish))
        for slot, c in counts.items():
            x[slot] = 1.0 + 0.1 * c
        return x / x.norm(), list(self.classes).index(section)


folder = tempfile.TemporaryDirectory(prefix="menus_")
write_menus(folder.name, 160)
dishes = Dishes(folder.name)
loader = DataLoader(dishes, batch_size=32, shuffle=True, num_workers=2, multiprocessing_context="spawn", persistent_workers=True)

model = nn.Sequential(nn.Linear(dishes.buckets, 64), nn.ReLU(), nn.Linear(64, len(SECTIONS)))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
history = []

for epoch in range(2):
    hits = seen = 0
    for x, y in loader:
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (logits.argmax(1) == y).sum().item()
        seen += len(y)
    history.append(hits / seen)
    print(f"epoch {epoch}: accuracy {history[-1]:.3f}")

print("sections:", ", ".join(dishes.classes), "best", max(history))
folder.cleanup()
