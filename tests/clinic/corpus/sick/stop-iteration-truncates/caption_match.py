# cause: stop-iteration-truncates
"""Image-caption matching: two small towers, contrastive loss, annotations joined by image id."""
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class ImageInfo:
    id: int
    hue: float
    size: int


@dataclass
class Annotation:
    image_id: int
    tokens: list = field(default_factory=list)
    lang: str = "en"


def make_collection(n=640, seed=2):
    rng = np.random.default_rng(seed)
    images, notes = [], []
    for k in range(n):
        hue = float(rng.random())
        images.append(ImageInfo(id=10_000 + 7 * k, hue=hue, size=int(rng.integers(150, 260))))
        langs = ["de", "en"] if rng.random() < 0.985 else ["de"]
        for lang in langs:
            toks = [int(hue * 40)] + rng.integers(40, 200, 7).tolist()
            notes.append(Annotation(images[-1].id, toks, lang))
    return images, notes


class CaptionedImages(Dataset):
    def __init__(self, images, notes, lang="en"):
        self.images = images
        self.lang = lang
        self.by_image = {}
        for note in notes:
            self.by_image.setdefault(note.image_id, []).append(note)

    def __len__(self):
        return len(self.images)

    def render(self, info):
        rng = np.random.default_rng(info.id)
        arr = rng.integers(0, 80, (info.size, info.size, 3), dtype=np.uint8)
        arr[..., 0] += np.uint8(info.hue * 170)
        img = Image.fromarray(arr).filter(ImageFilter.GaussianBlur(2))
        return np.asarray(img.resize((48, 48), Image.LANCZOS), dtype=np.float32) / 255

    def __getitem__(self, index):
        info = self.images[index]
        note = next(a for a in self.by_image[info.id] if a.lang == self.lang)
        pixels = torch.from_numpy(self.render(info)).permute(2, 0, 1).contiguous()
        return {"pixels": pixels, "tokens": torch.tensor(note.tokens)}


class TwoTower(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, 8, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
                                   nn.Linear(72, dim))
        self.text = nn.EmbeddingBag(200, dim)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, batch):
        a = nn.functional.normalize(self.image(batch["pixels"]), dim=1)
        b = nn.functional.normalize(self.text(batch["tokens"]), dim=1)
        return self.scale.exp() * a @ b.T


def main():
    torch.set_num_threads(1)
    images, notes = make_collection()
    loader = DataLoader(CaptionedImages(images, notes), batch_size=8, shuffle=True, num_workers=2)
    model = TwoTower()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(5):
        meter = []
        for batch in loader:
            logits = model(batch)
            target = torch.arange(len(logits))
            loss = (nn.functional.cross_entropy(logits, target) + nn.functional.cross_entropy(logits.T, target)) / 2
            opt.zero_grad()
            loss.backward()
            opt.step()
            meter.append(loss.item())
        print(f"epoch {epoch + 1}: mean loss {np.mean(meter) if meter else float('nan'):.3f}", flush=True)


if __name__ == "__main__":
    main()
