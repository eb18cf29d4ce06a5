"""Jobs for tests of backends."""

from __future__ import annotations

from torch.utils.data.dataloader import _DatasetKind

from penstock._engine.job import Job


class Doubles:
    """A map-style dataset; 13 is unlucky."""

    def __getitem__(self, index):
        if index == 13:
            raise ValueError("unlucky")
        return index * 2


class Three:
    """An iterable dataset of three samples."""

    def __iter__(self):
        return iter("abc")


def map_job(dataset=None, workers=1, init_fn=None, collate_fn=list):
    dataset = Doubles() if dataset is None else dataset
    return Job(_DatasetKind.Map, dataset, True, collate_fn, False, 100, init_fn, workers, None, "forked")


def iterable_job(dataset=None, workers=1):
    return Job(
        _DatasetKind.Iterable, dataset or Three(), True, list, False, 100, None, workers, None, "forked"
    )
