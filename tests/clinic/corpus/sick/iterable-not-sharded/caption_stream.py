# cause: iterable-not-sharded
import base64
import io
import json
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset


class JsonLines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        with open(self.path) as fh:
            for line in fh:
                yield json.loads(line)


class Mapped(IterableDataset):
    def __init__(self, source, fn):
        self.source, self.fn = source, fn

    def __iter__(self):
        return map(self.fn, self.source)


class Reservoir(IterableDataset):
    """Approximate shuffle with a fixed number of items in memory."""

    def __init__(self, source, capacity):
        self.source, self.capacity = source, capacity

    def __iter__(self):
        held = []
        for item in self.source:
            if len(held) < self.capacity:
                held.append(item)
                continue
            k = random.randrange(self.capacity)
            held[k], item = item, held[k]
            yield item
        random.shuffle(held)
        yield from held


class Decoder:
    def __init__(self, size, vocab, length):
        self.size, self.vocab, self.length = size, vocab, length

    def image(self, b64):
        im = Image.open(io.BytesIO(base64.b64decode(b64))).convert("RGB")
        im = im.resize((self.size * 3, self.size * 3), Image.BICUBIC).resize((self.size, self.size), Image.LANCZOS)
        return torch.from_numpy(np.asarray(im, dtype=np.float32).transpose(2, 0, 1).copy()) / 255

    def text(self, caption):
        ids = [self.vocab.get(w, 0) for w in caption.split()][: self.length]
        return torch.tensor(ids + [0] * (self.length - len(ids)))

    def __call__(self, record):
        return self.image(record["jpg"]), self.text(record["caption"])


def export(path, n):
    words = ["red", "green", "blue", "bright", "dark", "square", "field", "sky"]
    rs = np.random.RandomState(0)
    with open(path, "w") as fh:
        for i in range(n):
            rgb = rs.randint(0, 255, 3)
            arr = (rgb + rs.normal(0, 10, (120, 120, 3))).clip(0, 255).astype("uint8")
            buf = io.BytesIO()
            Image.fromarray(arr).save(buf, "JPEG", quality=90)
            caption = " ".join([words[int(rgb.argmax())], words[3 + int(rgb.sum() < 380)], words[5 + i % 3]])
            fh.write(json.dumps({"id": i, "caption": caption, "jpg": base64.b64encode(buf.getvalue()).decode()}) + "\n")
    return {w: k + 1 for k, w in enumerate(words)}


class TwoTower(nn.Module):
    def __init__(self, words, dim=64):
        super().__init__()
        self.vision = nn.Sequential(nn.Conv2d(3, 24, 5, 2, 2), nn.ReLU(), nn.Conv2d(24, 64, 3, 2, 1), nn.ReLU(),
                                    nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, dim))
        self.words = nn.EmbeddingBag(words + 1, dim, padding_idx=0)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        a = nn.functional.normalize(self.vision(image), dim=-1)
        b = nn.functional.normalize(self.words(text), dim=-1)
        return self.scale.exp() * a @ b.T


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "captions.jsonl")
        vocab = export(path, 200)
        data = Reservoir(Mapped(JsonLines(path), Decoder(96, vocab, 8)), capacity=64)
        loader = DataLoader(data, batch_size=16, num_workers=2, persistent_workers=True)
        model = TwoTower(len(vocab))
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        step = 0
        for epoch in range(2):
            for image, text in loader:
                logits = model(image, text)
                target = torch.arange(len(image))
                loss = (nn.functional.cross_entropy(logits, target) + nn.functional.cross_entropy(logits.T, target)) / 2
                opt.zero_grad()
                loss.backward()
                opt.step()
                step += 1
            print(f"epoch {epoch} global step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
