"""Leave a named piece of shared memory behind, at the end of more batches than a trial waits for."""

import time
from multiprocessing import resource_tracker, shared_memory

import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    made = shared_memory.SharedMemory(create=True, size=1000)
    resource_tracker.unregister(made._name, "shared_memory")
    for _batch in DataLoader(TensorDataset(torch.arange(60.0))):
        time.sleep(0.05)
    made.close()
