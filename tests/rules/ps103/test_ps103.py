"""PS103 class-not-importable."""

from __future__ import annotations

import pytest

from penstock._clinic.rules.start.ps103_class_not_importable import ClassNotImportable
from tests.rules.seen import facts, failure, loader, trial
from tests.rules.stuck import spawned

GONE = "DataLoader worker (pid(s) 11) exited unexpectedly"
LOST = "Can't get attribute 'Pictures' on <module '__mp_main__' from 'train.py'>"
PRINTED = """Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 132, in _main
    self = reduction.pickle.load(from_parent)
{}
"""


def found(seen=None, **fields):
    observed = trial(seen or spawned(), outcome="error", **fields)
    return list(ClassNotImportable().check(facts(observed)))


def test_the_class_that_workers_do_not_find_is_named():
    lost = failure(LOST, kind="AttributeError", phase="start", worker=0)

    (finding,) = found(failures=(lost, failure(GONE, is_fatal=True)))

    assert finding.message == "workers of `train_loader` are started by spawn and cannot import `Pictures`"
    assert finding.prescription.fix.name == "move-class"
    assert finding.where.line == 8


@pytest.mark.parametrize(
    "last",
    [
        f"AttributeError: {LOST}",
        "ModuleNotFoundError: No module named 'plugin_a'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/<stdin>'",
    ],
)
def test_what_a_worker_printed_is_enough(last):
    (finding,) = found(failures=(failure(GONE, is_fatal=True),), stderr=PRINTED.format(last))

    assert finding.cause == "class-not-importable"


def test_a_module_that_the_dataset_misses_is_its_own_affair():
    missing = failure(
        "No module named 'cv2'", kind="ModuleNotFoundError", phase="sample", worker=0, is_fatal=True
    )

    assert found(failures=(missing,)) == []


def test_under_fork_no_class_is_looked_up():
    assert (
        found(
            loader(),
            failures=(failure(GONE, is_fatal=True),),
            stderr=PRINTED.format(f"AttributeError: {LOST}"),
        )
        == []
    )
