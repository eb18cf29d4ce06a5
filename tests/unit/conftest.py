"""Collections after each test should look at what the test made, not at all of torch and pytest."""

from __future__ import annotations

import gc

import pytest
import torch  # noqa: F401 - before the first freeze

import penstock._loader  # noqa: F401 - as above


@pytest.fixture(scope="module", autouse=True)
def what_is_there_is_frozen():
    """Move what exists out of the collector's sight: the collection after each test then takes no time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
