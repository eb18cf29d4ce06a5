"""The slab waits for the last view of its batch."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from penstock._arena import lease


@pytest.fixture
def mapping(segment):
    segment.reserve(1000)
    return segment.map()


def test_a_lease_ends_with_its_view(mapping, without_collector):
    released = []
    view = lease.hold(mapping, released.append, 5)
    assert released == []
    del view
    assert released == [5]


@pytest.mark.parametrize(
    "keep",
    [
        lambda view: view[10:20],
        lambda view: np.frombuffer(view[10:20], np.uint8)[::2],
        lambda view: torch.frombuffer(view, dtype=torch.float32, count=4).view(2, 2)[1],
        lambda view: torch.frombuffer(view, dtype=torch.uint8, count=4).untyped_storage(),
        lambda view: torch.frombuffer(view, dtype=torch.uint8, count=4).numpy(),
    ],
    ids=["memoryview", "numpy", "torch", "storage", "numpy of torch"],
)
def test_a_lease_lasts_as_long_as_anything_made_from_it(mapping, keep, without_collector):
    released = []
    kept = keep(lease.hold(mapping, released.append, 5))
    assert released == []
    del kept
    assert released == [5]


def test_the_bytes_of_a_lease_are_the_slabs(mapping):
    view = lease.hold(mapping, lambda slab: None, 0)
    view[3] = 7
    assert np.frombuffer(mapping.whole, np.uint8)[3] == 7


def test_two_leases_of_one_mapping_end_apart(mapping, without_collector):
    released = []
    one, other = lease.hold(mapping, released.append, 1), lease.hold(mapping, released.append, 2)
    del other
    assert released == [2]
    del one
    assert released == [2, 1]


def test_the_last_view_may_die_in_another_thread(mapping):
    released = []
    views = [lease.hold(mapping, released.append, 9)]
    thread = threading.Thread(target=views.clear)
    thread.start()
    thread.join()
    assert released == [9]
