"""An archive that each process opens for itself."""

import io
import os
import tempfile
import zipfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Archive(Dataset):
    def __init__(self, path):
        self.path, self.zip, self.owner = path, None, None
        with zipfile.ZipFile(path) as archive:
            self.names = sorted(archive.namelist())

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        if self.owner != os.getpid():
            self.zip, self.owner = zipfile.ZipFile(self.path), os.getpid()
        return torch.from_numpy(np.load(io.BytesIO(self.zip.read(self.names[index])))), index


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "images.zip")
        rng = np.random.default_rng(0)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
            for i in range(300):
                buffer = io.BytesIO()
                np.save(buffer, rng.random((32, 32), dtype=np.float32))
                out.writestr(f"{i:05}.npy", buffer.getvalue())
        loader = DataLoader(Archive(path), batch_size=16, shuffle=True, num_workers=2)
        net = torch.nn.Linear(1024, 2)
        for epoch in range(2):
            for images, labels in loader:
                net(images.flatten(1)).sum().backward()
            print("epoch", epoch)
