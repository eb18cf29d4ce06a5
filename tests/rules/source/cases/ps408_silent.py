# ruff: noqa
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(), num_workers=2)
alone = DataLoader(TensorDataset())
first = next(iter(loader))
batches = iter(loader)
for step in range(1000):
    try:
        batch = next(batches)
    except StopIteration:
        batches = iter(loader)
        batch = next(iter(loader))
for step in range(10):
    batch = next(iter(alone))
    value = next(iter({"a": 1}))
for epoch in range(10):
    shown = next(iter(loader))
for step in range(1000):
    if step % 100 == 0:
        shown = next(iter(loader))
for split in ("train", "test"):
    shown = next(iter(loader))


def same_with_and_without_workers(dataset):
    for num_workers in (0, 2):
        loader = DataLoader(dataset, batch_size=8, num_workers=num_workers)
        yield next(iter(loader))
