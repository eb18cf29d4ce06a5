"""The programs of the six examples, as they were published, with a loop that counts what arrives.

Where an example needs two ways (fork or spawn, eager or lazy), the way is the first argument.
"""

from __future__ import annotations

# Around every program: silence about worker counts, and one line that says what came.
HEAD = """\
import sys, time, warnings
warnings.simplefilter("ignore")
WAY = sys.argv[1] if len(sys.argv) > 1 else ""
"""
LOOP = """\
    began, samples = time.perf_counter(), 0
    for batch in loader:
        samples += len(batch)
    print("RESULT", samples, time.perf_counter() - began)
"""

SHARED_MEMORY = (
    HEAD
    + '''\
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class LargeMemoryDataset(Dataset):
    def __init__(self, size):
        self.data = np.random.default_rng(0).random((size, 1024, 1024), dtype=np.float32)  # large data
    def __len__(self):
        return self.data.shape[0]
    def __getitem__(self, idx):
        return self.data[idx]

class LazyDataset(Dataset):
    """What the answer advises: nothing is loaded before it is needed."""
    def __init__(self, size):
        self.size = size
    def __len__(self):
        return self.size
    def __getitem__(self, idx):
        return np.random.default_rng(idx).random((1024, 1024), dtype=np.float32)

if __name__ == "__main__":
    dataset = LazyDataset(60) if WAY == "lazy" else LargeMemoryDataset(60)
    loader = DataLoader(dataset, batch_size=10, num_workers=4)
'''
    + LOOP
)

PICKLING = (
    HEAD
    + """\
import random
import torch
from torch.utils.data import DataLoader, Dataset

class BadPickleDataset(Dataset):
    def __init__(self, size):
        self.data = list(range(size))
        self.transform = lambda x: x * random.random()  # a lambda
    def __len__(self):
        return len(self.data)
    def __getitem__(self, idx):
        return self.transform(self.data[idx])

if __name__ == "__main__":
    dataset = BadPickleDataset(size=100)
    loader = DataLoader(dataset, batch_size=10, num_workers=4, multiprocessing_context=WAY or None)
"""
    + LOOP
)

OPENCV = (
    HEAD
    + """\
import os
if WAY == "variable":
    os.environ["OPENCV_OPENMP_NUM_THREADS"] = "1"
import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class ImageDataset(Dataset):
    def __init__(self, size):
        self.data = [np.random.randint(0, 256, size=(100, 100, 3), dtype=np.uint8) for _ in range(size)]
    def __len__(self):
        return len(self.data)
    def __getitem__(self, idx):
        return cv2.cvtColor(self.data[idx], cv2.COLOR_BGR2RGB)

if __name__ == "__main__":
    dataset = ImageDataset(size=100)
    cv2.resize(dataset.data[0], (512, 512))  # OpenCV's threads are there before the workers
    print("THREADS", cv2.getNumThreads())
    loader = DataLoader(dataset, batch_size=10, num_workers=4)
"""
    + LOOP
)

# A read takes 5 ms, as from a busy disk: otherwise there would be nothing that could be in each other's way.
FILES = (
    HEAD
    + """\
import os
import torch
from torch.utils.data import DataLoader, Dataset

class MyDataset(Dataset):
    def __init__(self, data_dir):
        self.data_dir = data_dir
        self.filenames = os.listdir(data_dir)
    def __len__(self):
        return len(self.filenames)
    def __getitem__(self, idx):
        filename = os.path.join(self.data_dir, self.filenames[idx])
        with open(filename, "rb") as f:
            data = f.read()
            time.sleep(0.005)  # a disk
        return data

if __name__ == "__main__":
    loader = DataLoader(MyDataset("files"), batch_size=10, num_workers=4)
"""
    + LOOP
)

EXCEPTION = (
    HEAD
    + """\
import torch
from torch.utils.data import DataLoader, Dataset

class MyDataset(Dataset):
    def __init__(self, data):
        self.data = data
    def __len__(self):
        return len(self.data)
    def __getitem__(self, idx):
        try:
            result = self.data[idx] / 0  # division by zero
            return result
        except Exception as e:
            print(f"Error in worker: {e}")
            return None

if __name__ == "__main__":
    loader = DataLoader(MyDataset(list(range(100))), batch_size=10, num_workers=4)
"""
    + LOOP
)

LOCK = (
    HEAD
    + """\
import contextlib
import multiprocessing
if WAY != "printed":
    import os
import torch
from torch.utils.data import DataLoader, Dataset

class MyDataset(Dataset):
    def __init__(self, data_dir):
        self.data_dir = data_dir
        self.filenames = os.listdir(data_dir)
        self.lock = contextlib.nullcontext() if WAY == "free" else multiprocessing.Lock()
    def __len__(self):
        return len(self.filenames)
    def __getitem__(self, idx):
        filename = os.path.join(self.data_dir, self.filenames[idx])
        with self.lock:
            with open(filename, "rb") as f:
                data = f.read()
                time.sleep(0.005)  # a disk
        return data

if __name__ == "__main__":
    loader = DataLoader(MyDataset("files"), batch_size=10, num_workers=4)
"""
    + LOOP
)
