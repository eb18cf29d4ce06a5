"""Healthy, but nothing seems to move for a while: in which way, the argument says."""

import concurrent.futures
import subprocess
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

HOW, SECONDS = sys.argv[1], float(sys.argv[2])


def pause():
    if HOW == "sleep":
        time.sleep(SECONDS)
    if HOW == "join":
        thread = threading.Thread(target=time.sleep, args=(SECONDS,))
        thread.start()
        thread.join()
    if HOW == "pool":
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(time.sleep, [SECONDS, SECONDS / 2]))
    if HOW == "child":
        subprocess.run(["/bin/sleep", str(SECONDS)], check=True)
    if HOW == "compute":
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            pass


class Slow(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            pause()
        return torch.ones(4)


if __name__ == "__main__":
    for _batch in DataLoader(Slow(), batch_size=4, num_workers=int(sys.argv[3])):
        if HOW == "step":
            time.sleep(SECONDS)
    print("through")
