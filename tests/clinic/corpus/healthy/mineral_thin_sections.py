# limits: memory=1G
"""Classifies minerals in patches of polarised light thin sections; sections are large, patches many per section."""
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass
class Plan:
    sections: int = 24
    edge: int = 768
    patch: int = 96
    patches: int = 48
    minerals: int = 5
    batch: int = 16
    epochs: int = 2
    workers: int = 2


class Recent:
    """The last few things asked for."""

    def __init__(self, load, size):
        self.load, self.size, self.items = load, size, OrderedDict()

    def __getitem__(self, key):
        if key in self.items:
            self.items.move_to_end(key)
        else:
            self.items[key] = self.load(key)
            if len(self.items) > self.size:
                self.items.popitem(last=False)
        return self.items[key]


def grind_sections(folder, plan):
    rng = np.random.default_rng(0)
    for number in range(plan.sections):
        mineral = number % plan.minerals
        grain = 6 + 5 * mineral
        coarse = rng.integers(30, 220, (plan.edge // grain + 1, plan.edge // grain + 1, 3), dtype=np.uint8)
        section = Image.fromarray(coarse).resize((plan.edge, plan.edge), Image.Resampling.BICUBIC)
        section.save(folder / f"{number:03d}_{mineral}.png", compress_level=1)
    return sorted(folder.glob("*.png"))


class Patches(Dataset):
    def __init__(self, files, plan):
        self.files, self.plan = files, plan
        self.sections = Recent(self._read, 3)

    def _read(self, path):
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))

    def __len__(self):
        return len(self.files) * self.plan.patches

    def __getitem__(self, index):
        path = self.files[index // self.plan.patches]
        section, p = self.sections[path], self.plan.patch
        y, x = np.random.randint(0, self.plan.edge - p, 2)
        patch = Image.fromarray(section[y:y + p, x:x + p])
        patch = patch.rotate(np.random.uniform(0, 360), Image.Resampling.BICUBIC)
        scales = [np.asarray(patch.filter(ImageFilter.GaussianBlur(r)), np.float32) for r in (2, 4, 8)]
        texture = np.asarray(patch, np.float32) - sum(scales) / 3
        stack = np.concatenate([np.asarray(patch, np.float32), texture], 2) / 255
        spectrum = np.log1p(np.abs(np.fft.fftshift(np.fft.fft2(stack[..., 3:], axes=(0, 1)), axes=(0, 1))))
        stack = np.concatenate([stack, spectrum.astype(np.float32)], 2)[::2, ::2]
        return torch.from_numpy(stack.transpose(2, 0, 1).copy()), int(path.stem.split("_")[1])


class SectionBatches(Sampler):
    """Every batch from a few neighbouring sections, whose order changes from epoch to epoch."""

    def __init__(self, sections, plan):
        self.sections, self.plan = sections, plan
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.sections * self.plan.patches // self.plan.batch

    def __iter__(self):
        rng = np.random.default_rng(self.epoch)
        order = rng.permutation(self.sections)
        for group in np.array_split(order, max(1, self.sections // 2)):
            pool = (group[:, None] * self.plan.patches + np.arange(self.plan.patches)).ravel()
            rng.shuffle(pool)
            yield from (pool[i:i + self.plan.batch].tolist() for i in range(0, len(pool), self.plan.batch))


class TextureNet(nn.Module):
    def __init__(self, minerals):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(9, 12, 5, stride=3), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2), nn.ReLU(),
                                  nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(144, minerals))

    def forward(self, x):
        return self.body(x)


def run(plan=Plan()):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="sections") as name:
        files = grind_sections(Path(name), plan)
        sampler = SectionBatches(len(files), plan)
        loader = DataLoader(Patches(files, plan), batch_sampler=sampler, num_workers=plan.workers,
                            persistent_workers=plan.workers > 0)
        model = TextureNet(plan.minerals)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for epoch in range(plan.epochs):
            sampler.set_epoch(epoch)
            right = seen = 0
            for patch, mineral in loader:
                logits = model(patch)
                loss = nn.functional.cross_entropy(logits, mineral)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (logits.argmax(1) == mineral).sum().item()
                seen += len(mineral)
            print(f"epoch {epoch} accuracy {right / seen:.3f}", flush=True)


if __name__ == "__main__":
    run()
