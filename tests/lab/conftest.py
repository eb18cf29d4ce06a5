"""Trials of real programs take seconds: `make test` asks each question once, `make chaos` asks them all."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items):
    """Mark as slow all but the first variant of each test."""
    seen = set()
    for item in items:
        key = item.path, getattr(item, "originalname", item.name)
        if item.path.parent.name == "lab" and key in seen:
            item.add_marker(pytest.mark.slow)
        seen.add(key)
