# limits: shm=64M
"""Fine-tuning on chest films out of one big archive, with background checkpoints and a crop curriculum."""
import io
import os
import random
import tempfile
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from PIL import Image, UnidentifiedImageError
from torch import nn
from torch.utils.data import DataLoader, Dataset

FINDINGS = ("effusion", "nodule", "normal")


def write_archive(path, n=320, side=96):
    g = np.random.default_rng(3)
    with zipfile.ZipFile(path, "w") as z:
        for i in range(n):
            k = i % len(FINDINGS)
            film = g.integers(0, 120, size=(side, side), dtype=np.uint8)
            film[20 * k + 10:20 * k + 30] += 100
            buf = io.BytesIO()
            Image.fromarray(film).save(buf, format="PNG", compress_level=1)
            data = buf.getvalue()
            z.writestr(f"{i:05d}_{FINDINGS[k]}.png", b"\x00" * 64 if i in (40, 201) else data)


class Archive:
    """A zip file that every process opens for itself."""

    def __init__(self, path):
        self.path = str(path)
        self._zip, self._pid = None, None
        self._guard = threading.Lock()

    def _handle(self):
        if self._zip is None or self._pid != os.getpid():
            self._zip, self._pid = zipfile.ZipFile(self.path), os.getpid()
        return self._zip

    def names(self):
        with zipfile.ZipFile(self.path) as z:
            return sorted(z.namelist())

    def read(self, name):
        with self._guard:
            return self._handle().read(name)


class ChestFilms(Dataset):
    def __init__(self, archive, names, epochs=1, augment=False):
        self.archive, self.names, self.augment, self.epochs = archive, names, augment, epochs
        self.epoch = mp.Value("i", 0)        # seen by workers that live on

    def set_epoch(self, epoch):
        self.epoch.value = epoch

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        name = self.names[i]
        try:
            film = Image.open(io.BytesIO(self.archive.read(name))).convert("L")
        except (UnidentifiedImageError, OSError):
            return self[(i + 1) % len(self)]
        if self.augment:
            r = random.Random(f"{self.epoch.value}/{i}")
            side = int(film.width * (0.7 + 0.3 * self.epoch.value / self.epochs))
            x, y = r.randint(0, film.width - side), r.randint(0, film.height - side)
            film = film.crop((x, y, x + side, y + side))
        x = torch.from_numpy(np.array(film.resize((64, 64)), dtype=np.float32) / 255)[None]
        return x, FINDINGS.index(name[6:-4])


class BackgroundSaver:
    def __init__(self, folder, guard):
        self.folder, self.guard, self.thread = Path(folder), guard, None

    def submit(self, name, state):
        state = {k: v.clone() for k, v in state.items()}

        def work():
            with self.guard:
                torch.save(state, self.folder / name)
                time.sleep(0.3)                # flush of the network volume

        self.thread = threading.Thread(target=work)
        self.thread.start()

    def wait(self):
        if self.thread is not None:
            self.thread.join()
            self.thread = None


class FilmNet(nn.Module):
    def __init__(self, w=40):
        super().__init__()
        self.stem = nn.Conv2d(1, w, 5, 2, 2)
        self.blocks = nn.ModuleList(nn.Conv2d(w, w, 3, padding=1) for _ in range(5))
        self.head = nn.Linear(w, len(FINDINGS))

    def forward(self, x):
        x = F.relu(self.stem(x))
        for b in self.blocks:
            x = F.relu(x + b(x))
        return self.head(x.mean((2, 3)))


def main(epochs=3, batch=16):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        write_archive(Path(tmp) / "films.zip")
        archive = Archive(Path(tmp) / "films.zip")
        names = archive.names()
        train_set = ChestFilms(archive, names[:272], epochs, augment=True)
        val_set = ChestFilms(archive, names[272:])
        train = DataLoader(train_set, batch, shuffle=True, num_workers=2, persistent_workers=True)
        val = DataLoader(val_set, batch, num_workers=1, persistent_workers=True)
        net = FilmNet()
        opt = torch.optim.AdamW(net.parameters(), 1e-3)
        saver = BackgroundSaver(tmp, archive._guard)
        for epoch in range(epochs):
            train_set.set_epoch(epoch)
            saver.wait()                     # the volume is ours again before anything new is started
            t0, total = time.time(), 0.0
            net.train()
            for x, y in train:
                loss = F.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            net.eval()
            with torch.no_grad():
                acc = sum((net(x).argmax(1) == y).sum().item() for x, y in val) / len(val_set)
            saver.submit(f"film-{epoch}.pt", net.state_dict())
            print(f"epoch {epoch} loss {total / len(train):.4f} acc {acc:.3f} {time.time() - t0:.1f}s", flush=True)
        saver.wait()


if __name__ == "__main__":
    main()
