# ruff: noqa
import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Global(Dataset):
    def __init__(self):
        rng = np.random.default_rng(0)
        self.order = rng.permutation(10)

    def __getitem__(self, index):
        return self.order[index] + np.random.normal()


class Seeded(Dataset):
    def __init__(self):
        self.rng = np.random.RandomState(0)

    def __getitem__(self, index):
        self.rng.seed(index)
        return self.rng.normal()


class PerSample(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index):
        self.rng = np.random.default_rng(index)
        return self.rng.normal()


class PerWorker(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index):
        return self.rng.normal()


class Asking(PerWorker):
    def __getitem__(self, index):
        if get_worker_info() is not None:
            self.prepare()
        return self.rng.normal()

    def prepare(self):
        pass


class Alone(PerWorker):
    pass


def seed_worker(number):
    get_worker_info().dataset.rng = np.random.default_rng(number)


DataLoader(Global(), num_workers=2)
DataLoader(Seeded(), num_workers=2)
DataLoader(PerSample(), num_workers=2)
DataLoader(PerWorker(), num_workers=2, worker_init_fn=seed_worker)
DataLoader(PerWorker(), num_workers=2)  # for validation, which draws nothing
DataLoader(Asking(), num_workers=2)
DataLoader(Alone(), num_workers=0)
