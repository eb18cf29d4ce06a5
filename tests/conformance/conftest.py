"""Which loader is under test: every test here runs on torch's DataLoader and on penstock's.

A test that compares asks torch's class for the expected batches and `loader_class` for the
others. Its `[torch]` row then shows that the comparison is sound (torch agrees with itself), its
`[penstock]` row that we agree with torch. To run torch's rows alone: `-k "not penstock"`.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.utils.data

from .comparing import seed_everything


@pytest.fixture(scope="session")
def penstock_class():
    from penstock import DataLoader

    return DataLoader


@pytest.fixture(params=["torch", "penstock"], scope="session")
def loader_class(request):
    if request.param == "torch":
        return torch.utils.data.DataLoader
    return request.getfixturevalue("penstock_class")


@pytest.fixture(autouse=True)
def _same_random_state_in_every_test():
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    seed_everything()
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])
    torch.set_rng_state(before[2])


# What is asked of each start method, many times over. `make test` asks once; `make chaos` asks it all.
_MANY_VARIANTS = {"test_mistakes.py", "test_seed_option.py"}


def pytest_collection_modifyitems(items):
    """Mark as slow all but the first variant that starts clean workers, of each test with many of them."""
    seen = set()
    for item in items:
        name = getattr(item, "originalname", None)
        if item.path.name in _MANY_VARIANTS and "spawn" in item.name:
            if (item.path, name) in seen:
                item.add_marker(pytest.mark.slow)
            seen.add((item.path, name))
