# cause: large-python-objects
# also: transform-bound, not-fed-fast-enough
"""Page layout tagging from OCR exports (one JSON document per page)."""
import argparse
import json
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = ["title", "text", "table", "figure", "footer"]


def export_pages(root, pages, boxes):
    rng = random.Random(2)
    for p in range(pages):
        doc = {"page": p, "boxes": [{"x": rng.random(), "y": rng.random(), "w": rng.random() * 0.2, "h": rng.random() * 0.1,
                                     "text": "word%05d" % rng.randrange(99999), "conf": rng.random(),
                                     "font": "font-%d" % rng.randrange(2000), "kind": KINDS[rng.randrange(5)]} for _ in range(boxes)]}
        with open(os.path.join(root, "%04d.json" % p), "w") as f:
            json.dump(doc, f)


class Pages(Dataset):
    def __init__(self, root, repeat):
        self.files = [os.path.join(root, n) for n in sorted(os.listdir(root))] * repeat

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with open(self.files[i]) as f:
            return json.load(f)


def keep(docs):
    return docs


def vectorise(docs):
    geo = torch.tensor([[b["x"], b["y"], b["w"], b["h"], b["conf"]] for d in docs for b in d["boxes"][:50]])
    kind = torch.tensor([KINDS.index(b["kind"]) for d in docs for b in d["boxes"][:50]])
    return geo, kind


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pages", type=int, default=32)
    ap.add_argument("--boxes", type=int, default=3000)
    ap.add_argument("--repeat", type=int, default=8)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, len(KINDS)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as root:
        export_pages(root, a.pages, a.boxes)
        loader = DataLoader(Pages(root, a.repeat), batch_size=8, shuffle=True, collate_fn=keep, num_workers=a.workers)
        t0 = time.time()
        for step, docs in enumerate(loader):
            geo, kind = vectorise(docs)
            loss = nn.functional.cross_entropy(model(geo), kind)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 8 == 7:
                print("step %d loss %.3f %.1f pages/s" % (step + 1, loss.item(), 8 * (step + 1) / (time.time() - t0)), flush=True)


if __name__ == "__main__":
    main()
