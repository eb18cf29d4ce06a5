"""Stall occupancy maps from a COCO-style annotation file, packed after parsing."""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


def make_annotations(path, scenes, stalls):
    rng = np.random.default_rng(3)
    boxes = np.concatenate([rng.integers(0, 560, (scenes * stalls, 2)), rng.integers(10, 60, (scenes * stalls, 2))], 1)
    annotations = [{"id": n, "image_id": n // stalls, "bbox": box} for n, box in enumerate(boxes.tolist())]
    path.write_text(json.dumps({"images": [{"id": i} for i in range(scenes)], "annotations": annotations}))


class PackedBoxes:
    """All boxes in one array, with the first row of every image."""

    def __init__(self, path):
        raw = json.loads(Path(path).read_text())
        rows = sorted((a["image_id"], *a["bbox"]) for a in raw["annotations"])
        table = np.array(rows, np.int32)
        self.boxes = table[:, 1:].copy()
        self.first = np.searchsorted(table[:, 0], np.arange(len(raw["images"]) + 1))

    def __len__(self):
        return len(self.first) - 1

    def of(self, image):
        return self.boxes[self.first[image]:self.first[image + 1]]


class StallMaps(Dataset):
    def __init__(self, boxes, side):
        self.boxes, self.side = boxes, side

    def __len__(self):
        return len(self.boxes)

    def __getitem__(self, i):
        scene = Image.new("L", (640, 640))
        pen = ImageDraw.Draw(scene)
        for x, y, w, h in self.boxes.of(i).tolist():
            pen.rectangle((x, y, x + w, y + h), fill=255)
        mask = np.asarray(scene.resize((self.side, self.side), Image.LANCZOS), np.float32) / 255
        seen = mask + 0.4 * np.random.standard_normal(mask.shape).astype(np.float32)
        return torch.from_numpy(seen)[None], torch.from_numpy(mask)[None]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--scenes", type=int, default=900)
    p.add_argument("--stalls", type=int, default=40)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        path = Path(d) / "stalls.json"
        make_annotations(path, a.scenes, a.stalls)
        data = StallMaps(PackedBoxes(path), 48)
        order = torch.randperm(len(data)).tolist()
        train = DataLoader(Subset(data, order[64:]), a.batch, shuffle=True, num_workers=a.workers, drop_last=True)
        net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
        opt = torch.optim.Adam(net.parameters(), 3e-3)
        began = time.time()
        for step, (x, y) in enumerate(train):
            loss = nn.functional.binary_cross_entropy_with_logits(net(x), y.clamp(0, 1))
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.06)  # gradients travel to the parameter server
            if step % 15 == 0:
                print(f"step {step}/{len(train)} loss {loss.item():.4f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
