"""Instrument presence in endoscopic video: three synchronised views per time step, read in parallel by a small pool of each worker."""
import io
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

VIEWS = 3


class ObjectStore:
    """In-memory stand-in for the hospital's store; a look-up costs a few milliseconds."""

    def __init__(self, steps):
        rng = np.random.default_rng(2)
        self.labels = rng.integers(0, 2, steps)
        self.blobs = {}
        for s in range(steps):
            for v in range(VIEWS):
                a = rng.integers(60, 110, (128, 128, 3), dtype=np.uint8)
                if self.labels[s]:
                    a[40:90, 60:68] = 220
                b = io.BytesIO()
                Image.fromarray(a).save(b, "JPEG", quality=85)
                self.blobs[s, v] = b.getvalue()

    def get(self, key):
        time.sleep(0.004)
        return self.blobs[key]


class Endoscopy(Dataset):
    def __init__(self, store):
        self.store, self.pool = store, None

    def __len__(self):
        return len(self.store.labels)

    def _view(self, key):
        im = Image.open(io.BytesIO(self.store.get(key))).filter(ImageFilter.GaussianBlur(1.5)).resize((48, 48), Image.LANCZOS)
        return np.asarray(im, np.float32) / 255

    def __getitem__(self, s):
        keys = [(s, v) for v in range(VIEWS)]
        run = self.pool.map if self.pool is not None else map
        return torch.from_numpy(np.stack(list(run(self._view, keys)))).permute(0, 3, 1, 2), int(self.store.labels[s])


def attach_pool(worker_id):
    get_worker_info().dataset.pool = ThreadPoolExecutor(VIEWS)


def main():
    torch.manual_seed(0)
    data = Endoscopy(ObjectStore(360))
    x0, _ = data[0]
    print("view tensor", tuple(x0.shape), flush=True)
    loader = DataLoader(data, 18, shuffle=True, num_workers=2, worker_init_fn=attach_pool, persistent_workers=True)
    net = nn.Sequential(nn.Flatten(0, 1), nn.Conv2d(3, 8, 5, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(3), nn.Flatten(), nn.Unflatten(0, (-1, VIEWS)), nn.Flatten(), nn.Linear(72 * VIEWS, 2))
    opt = torch.optim.AdamW(net.parameters(), 3e-3)
    for epoch in range(5):
        good = n = 0
        for x, y in loader:
            out = net(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad(); loss.backward(); opt.step()
            good += int((out.argmax(1) == y).sum()); n += len(y)
        print(f"epoch {epoch}: {good}/{n}, loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
