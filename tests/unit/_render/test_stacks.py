from __future__ import annotations

import pytest

from penstock._lab.record import Frame, ProcessLook, ThreadLook
from penstock._render import stacks
from penstock._render.stacks import Standing, standings


def look(worker, frames, pid=None, **fields):
    pid = pid or 100 + worker
    thread = ThreadLook(pid, "MainThread", tuple(frames), "futex_do_wait")
    return ProcessLook(pid, 1, "worker", worker, threads=(thread,), **fields)


OWN = Frame("D.__getitem__", "train.py", 8)
TORCH = Frame("fetch", "/v/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", 54)


def test_workers_at_the_same_place_stand_together():
    found = standings([look(1, [OWN, TORCH], index=4), look(0, [OWN, TORCH], index=0), look(2, [TORCH])])
    assert found == [
        Standing(("worker 0 (pid 100, sample 0)", "worker 1 (pid 101, sample 4)"), "futex_do_wait", (OWN,)),
        Standing(("worker 2 (pid 102)",), "futex_do_wait", (TORCH,)),
    ]


def test_a_process_without_a_stack_is_named_all_the_same():
    assert standings([ProcessLook(7, role="main")]) == [Standing(("main (pid 7)",), "", ())]


@pytest.mark.parametrize(
    ("file", "is_own"),
    [
        ("train.py", True),
        ("/home/me/penstock/train.py", True),
        ("/usr/lib/python3.11/queue.py", False),
        ("<frozen runpy>", False),
        (f"{stacks.OURS}/_lab/inside/passes.py", False),
    ],
)
def test_only_lines_of_the_user_are_his_own(file, is_own):
    assert stacks.is_own(Frame("f", file, 1)) is is_own


def test_a_deep_stack_is_cut():
    frames = [Frame("f", "train.py", line) for line in range(20)]
    assert len(standings([look(0, frames)])[0].frames) == stacks.MOST_FRAMES


@pytest.mark.parametrize(
    ("file", "place"),
    [
        (
            "/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
            "torch/utils/data/dataloader.py:3",
        ),
        ("/usr/lib/python3.11/multiprocessing/queues.py", "multiprocessing/queues.py:3"),
        ("/home/me/train.py", "/home/me/train.py:3"),
        ("<frozen runpy>", "<frozen runpy>:3"),
    ],
)
def test_a_library_is_called_by_its_name(file, place):
    assert stacks.place(Frame("f", file, 3)) == place
