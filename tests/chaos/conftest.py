"""What chaos tests share: a stage for scripts."""

from __future__ import annotations

import gc

import pytest

from .stage import Stage

# Scenarios that are not right yet, each to be struck out by the change that mends it. They run, and may pass:
# several depend on the moment.
OPEN = frozenset(
    {
        "test_clean_workers.py::test_a_fresh_process_takes[a_nursery_that_was_killed_is_replaced]",
        "test_clean_workers.py::test_a_fresh_process_takes[a_parameter_made_while_pickling]",
        "test_clean_workers.py::test_a_fresh_process_takes[a_shared_tensor_made_while_pickling]",
        "test_clean_workers.py::test_a_program_without_a_guard_runs_once[a script]",
        "test_hostile_places.py::test_a_memory_cgroup_that_is_full_is_an_error_with_numbers_or_no_matter",
        "test_hostile_places.py::test_a_working_directory_that_is_gone_does_not_matter[spawn]",
        "test_hostile_places.py::test_closed_standard_streams_do_not_matter[(0, 1, 2)]",
        "test_hostile_places.py::test_kept_batches_live_with_64_descriptors",
        "test_hostile_places.py::test_little_address_space_is_an_error_with_words_or_no_matter[120]",
        "test_hostile_places.py::test_little_address_space_is_an_error_with_words_or_no_matter[200]",
        "test_hostile_places.py::test_too_few_descriptors_are_named_in_the_error[8]",
        "test_right_data.py::test_batches_in_flight_stay_within_the_budget",
    }
)


def pytest_collection_modifyitems(items):
    """Run the open scenarios without letting them decide."""
    for item in items:
        if item.nodeid.removeprefix("tests/chaos/") in OPEN:
            item.add_marker(
                pytest.mark.xfail(reason="open: see OPEN in tests/chaos/conftest.py", strict=False)
            )


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
