# cause: lock-held-at-fork
"""Precipitation nowcasting on radar mosaics kept in a small object store."""
import io
import json
import queue
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

CFG = dict(days=20, frames=24, side=40, context=4, lead=2, batch=16, workers=2, epochs=4, lr=2e-3, chunk=1 << 15)


class ObjectStore:
    """Directory-backed store; one reader or writer at a time, as on the shared scratch volume."""

    def __init__(self, root):
        self.root = Path(root)
        self.mutex = threading.Lock()
        self.stats = {"get": 0, "put": 0}

    def get(self, key):
        with self.mutex:
            self.stats["get"] += 1
            return (self.root / key).read_bytes()

    def put(self, key, payload, bandwidth=None):
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.mutex:
            self.stats["put"] += 1
            with open(path, "wb") as f:
                for i in range(0, len(payload), CFG["chunk"]):
                    f.write(payload[i:i + CFG["chunk"]])
                    if bandwidth:
                        time.sleep(CFG["chunk"] / bandwidth)


class CheckpointUploader(threading.Thread):
    """Writes checkpoints in the background, throttled to leave bandwidth to the others."""

    def __init__(self, store, bandwidth=400_000):
        super().__init__(daemon=True)
        self.store, self.bandwidth = store, bandwidth
        self.todo = queue.Queue()
        self.start()

    def submit(self, name, state):
        buf = io.BytesIO()
        torch.save(state, buf)
        self.todo.put((name, buf.getvalue()))

    def run(self):
        while True:
            name, payload = self.todo.get()
            self.store.put(f"checkpoints/{name}", payload, self.bandwidth)
            self.todo.task_done()


def ingest(store, days, frames, side):
    g = np.random.default_rng(5)
    keys = []
    for d in range(days):
        field = g.gamma(0.4, 2.0, size=(side, side)).astype(np.float32)
        seq = np.stack([np.roll(field, (t, 2 * t), (0, 1)) for t in range(frames)])
        buf = io.BytesIO()
        np.save(buf, seq)
        key = f"radar/2021-06-{d + 1:02d}.npy"
        store.put(key, buf.getvalue())
        keys.append(key)
    return keys


class NowcastWindows(Dataset):
    def __init__(self, store, keys, frames, context, lead):
        self.store = store
        self.context, self.lead = context, lead
        self.index = [(k, t) for k in keys for t in range(frames - context - lead)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        key, t = self.index[i]
        seq = np.load(io.BytesIO(self.store.get(key)))
        past = seq[t:t + self.context]
        target = seq[t + self.context + self.lead - 1]
        return np.log1p(past), np.log1p(target)


class ConvNowcaster(nn.Module):
    def __init__(self, context, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(context, width, 3, padding=1), nn.GELU(),
                                 nn.Conv2d(width, width, 3, 2, padding=1), nn.GELU(),
                                 nn.ConvTranspose2d(width, width, 4, 2, 1), nn.GELU(), nn.Conv2d(width, 1, 1))

    def forward(self, x):
        return self.net(x)[:, 0]


def fit(store, keys):
    data = NowcastWindows(store, keys, CFG["frames"], CFG["context"], CFG["lead"])
    n_val = len(data) // 8
    train_set, val_set = random_split(data, [len(data) - n_val, n_val], torch.Generator().manual_seed(1))
    train = DataLoader(train_set, CFG["batch"], shuffle=True, num_workers=CFG["workers"])
    val = DataLoader(val_set, CFG["batch"])
    model = ConvNowcaster(CFG["context"])
    opt = torch.optim.AdamW(model.parameters(), CFG["lr"])
    uploader = CheckpointUploader(store)
    history = []
    for epoch in range(CFG["epochs"]):
        t0, losses = time.time(), []
        model.train()
        for past, target in train:
            loss = F.mse_loss(model(past), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            err = np.mean([F.l1_loss(model(p), y).item() for p, y in val])
        history.append({"epoch": epoch, "train": float(np.mean(losses)), "mae": float(err)})
        uploader.submit(f"nowcast-{epoch:03d}.pt", {"model": model.state_dict(), "opt": opt.state_dict()})
        (store.root / "history.json").write_text(json.dumps(history))
        print(f"epoch {epoch}: mse {np.mean(losses):.4f} val mae {err:.4f} {time.time() - t0:.1f}s", flush=True)
    uploader.todo.join()
    print("checkpoints:", sorted(p.name for p in (store.root / "checkpoints").iterdir()))


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        store = ObjectStore(root)
        fit(store, ingest(store, CFG["days"], CFG["frames"], CFG["side"]))
