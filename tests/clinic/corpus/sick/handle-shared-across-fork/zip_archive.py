# cause: handle-shared-across-fork
"""Images in one archive that is opened once."""

import io
import os
import tempfile
import zipfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Archive(Dataset):
    def __init__(self, path):
        self.zip = zipfile.ZipFile(path)
        self.names = sorted(self.zip.namelist())

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        array = np.load(io.BytesIO(self.zip.read(self.names[index])))
        return torch.from_numpy(array), index


def make(path):
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for i in range(600):
            buffer = io.BytesIO()
            np.save(buffer, rng.random((32, 32), dtype=np.float32))
            out.writestr(f"{i:05}.npy", buffer.getvalue())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "images.zip")
        make(path)
        loader = DataLoader(Archive(path), batch_size=16, shuffle=True, num_workers=4)
        net = torch.nn.Linear(1024, 2)
        for epoch in range(3):
            for images, labels in loader:
                net(images.flatten(1)).sum().backward()
            print("epoch", epoch)
