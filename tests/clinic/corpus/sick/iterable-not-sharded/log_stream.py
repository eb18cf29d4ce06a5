# cause: iterable-not-sharded
"""A stream of log lines, read by every worker from the start."""

import torch
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        for number in range(self.count):
            yield torch.tensor([number % 97, number % 31, number], dtype=torch.float32)


def main():
    loader = DataLoader(Lines(600), batch_size=20, num_workers=3)
    model = torch.nn.Linear(3, 1)
    for epoch in range(2):
        steps = 0
        for batch in loader:
            model(batch).mean().backward()
            steps += 1
        print("epoch", epoch, "steps", steps)


if __name__ == "__main__":
    main()
