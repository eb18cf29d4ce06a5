"""End-to-end tests borrow the stage of the chaos tests: a process of its own for a program."""

from __future__ import annotations

from multiprocessing import resource_tracker

import pytest

from tests.chaos.conftest import stage  # noqa: F401 - a fixture


@pytest.fixture(scope="session")
def spawn_locks():
    """Locks that can be spawned need a process of multiprocessing's own, which stays for the session."""
    resource_tracker.ensure_running()
