"""Which loader is under test: every test here runs on torch's DataLoader and on penstock's.

A test that compares asks torch's class for the expected batches and `loader_class` for the
others. Its `[torch]` row then shows that the comparison is sound (torch agrees with itself), its
`[penstock]` row that we agree with torch. To run torch's rows alone: `-k "not penstock"`.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.utils.data

from .comparing import seed_everything

HERE = Path(__file__).parent


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


# Tests by the hundred: their `[torch]` rows, which show that comparisons are sound, are left to `make chaos`.
MANY = {"test_payloads.py", "test_map_style.py", "test_collate.py"}


def pytest_collection_modifyitems(items):
    """Mark as slow what starts clean workers, seconds each, but for our own first variant; and see MANY."""
    seen = set()
    for item in items:
        if item.path.parent != HERE:
            continue
        variant = item.name.partition("[")[2]
        name = (item.path, getattr(item, "originalname", None))
        is_torch = variant.startswith("torch") or "-torch" in variant
        is_clean = "spawn" in variant or "forkserver" in variant
        if (is_torch and (is_clean or item.path.name in MANY)) or (is_clean and name in seen):
            item.add_marker(pytest.mark.slow)
        elif is_clean:
            seen.add(name)
