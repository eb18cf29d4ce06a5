"""What chaos tests share: a stage for scripts."""

from __future__ import annotations

import gc

import pytest

from .stage import Stage


@pytest.fixture(scope="session", autouse=True)
def _quick_collections():
    """The check around every test collects garbage: spare it a look at everything that was imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    """Where scripts run, each in a process of its own."""
    stage = Stage(tmp_path_factory.mktemp("stage"))
    yield stage
    stage.close()
