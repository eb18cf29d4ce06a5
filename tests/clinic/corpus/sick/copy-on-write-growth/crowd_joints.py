# cause: copy-on-write-growth
"""Joint heat maps for crowded scenes, from a COCO-style annotation file."""
import argparse
import json
import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

log = logging.getLogger("joints")
JOINTS = 8


def make_annotations(path, scenes, people):
    rng = np.random.default_rng(3)
    images = [{"id": i, "file_name": f"scene_{i:06d}.raw", "width": 640, "height": 480} for i in range(scenes)]
    corner = rng.integers(0, 440, (scenes * people, 1, 2)) / 2
    joints = np.concatenate([corner + rng.integers(0, 160, (len(corner), JOINTS, 2)) / 4, np.full((len(corner), JOINTS, 1), 2.0)], 2)
    annotations = [{"id": n, "image_id": n // people, "bbox": [*xy, 40.0, 40.0], "keypoints": points}
                   for n, (xy, points) in enumerate(zip(corner[:, 0].tolist(), joints.reshape(len(joints), -1).tolist()))]
    path.write_text(json.dumps({"images": images, "annotations": annotations}))


class AnnotationIndex:
    """Same idea as pycocotools.COCO: everything stays parsed."""

    def __init__(self, path):
        raw = json.loads(Path(path).read_text())
        self.images = {im["id"]: im for im in raw["images"]}
        self.by_image = {}
        for a in raw["annotations"]:
            self.by_image.setdefault(a["image_id"], []).append(a)

    def people(self, image_id):
        return self.by_image.get(image_id, [])


class Split:
    def __init__(self, index, ids):
        self.index, self.ids = index, ids

    def load(self, i):
        image = self.index.images[self.ids[i]]
        return image, [(a["bbox"], a["keypoints"]) for a in self.index.people(image["id"])]


class JointMaps(Dataset):
    def __init__(self, split, side=48):
        self.split, self.side = split, side

    def __len__(self):
        return len(self.split.ids)

    def __getitem__(self, i):
        image, people = self.split.load(i)
        sx, sy = self.side / image["width"], self.side / image["height"]
        maps = np.zeros((JOINTS, self.side, self.side), np.float32)
        for box, points in people:
            xy = np.array(points, np.float32).reshape(JOINTS, 3)
            x, y = (xy[:, 0] * sx).astype(int), (xy[:, 1] * sy).astype(int)
            maps[range(JOINTS), y.clip(0, self.side - 1), x.clip(0, self.side - 1)] += 1
        blurred = maps + np.roll(maps, 1, 1) + np.roll(maps, 1, 2)
        noise = np.random.standard_normal((self.side, self.side)).astype(np.float32)
        return torch.from_numpy(blurred.sum(0)[None] + 0.3 * noise), torch.from_numpy(maps.clip(0, 1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--scenes", type=int, default=4200)
    p.add_argument("--people", type=int, default=24)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch", type=int, default=32)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        path = Path(d) / "instances.json"
        make_annotations(path, a.scenes, a.people)
        index = AnnotationIndex(path)
        data = JointMaps(Split(index, sorted(index.images)))
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
        train = DataLoader(Subset(data, order[256:]), a.batch, shuffle=True, num_workers=a.workers)
        net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, JOINTS, 3, padding=1))
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        began = time.time()
        for step, (x, y) in enumerate(train):
            loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 30 == 0:
                log.info("step %d/%d loss %.4f %.1fs", step, len(train), loss.item(), time.time() - began)


if __name__ == "__main__":
    main()
