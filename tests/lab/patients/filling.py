"""Keep files open: "more", one for each batch, until there are none left; "many", all from the start."""

import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

LIMIT = 90

if __name__ == "__main__":
    kept = [open("/dev/null") for _ in range(LIMIT // 2 if sys.argv[1] == "many" else 0)]  # noqa: SIM115, PTH123
    for _batch in DataLoader(TensorDataset(torch.arange(200.0))):
        time.sleep(0.03)
        if sys.argv[1] == "more":
            kept.append(open("/dev/null"))  # noqa: SIM115, PTH123
