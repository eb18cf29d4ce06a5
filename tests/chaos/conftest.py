"""What chaos tests share: a stage for scripts."""

from __future__ import annotations

import gc

import pytest

from .stage import Stage

# Scenarios that are not right yet, each to be struck out by the change that mends it. They run, and may pass:
# several depend on the moment.
OPEN = frozenset(
    {
        "test_end_of_the_interpreter.py::test_a_program_ends_at_once_with[an epoch in a daemon thread]",
        "test_signals_to_the_consumer.py::test_a_timeout_of_the_users_own_in_next_loses_nothing_for_the_next_epoch",
        "test_signals_to_the_consumer.py::test_an_interrupt_that_is_caught_leaves_a_process_that_can_go_on",
        "test_signals_to_the_consumer.py::test_an_iterator_after_a_timeout_of_the_users_own_in_next_is_neither_wrong_nor_stuck",
        "test_signals_to_the_consumer.py::test_ctrl_c_in_a_zygote_that_is_just_being_forked_does_not_run_the_consumers_code_twice[1]",
        "test_signals_to_the_consumer.py::test_ctrl_c_while_clean_workers_are_being_prepared_is_one_interrupt",
        "test_signals_to_the_consumer.py::test_nothing_survives_a_group_that_was_stopped_before_its_consumer_is_killed",
        "test_threads.py::test_a_loader_ends_although_a_process_was_forked_while_it_began",
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
