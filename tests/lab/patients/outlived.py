"""A child that is killed in the middle of its epoch, while this program goes on for some seconds."""

import multiprocessing
import os
import signal
import time

from torch.utils.data import DataLoader


class Long:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(30 if index > 1 else 0)
        return index


def child(told):
    batches = iter(DataLoader(Long(), 1, num_workers=2))
    next(batches)
    told.set()
    next(batches)
    next(batches)


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    told = context.Event()
    process = context.Process(target=child, args=(told,))
    process.start()
    told.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    time.sleep(8)
