"""Memory, descriptors and processes, of this very process."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from penstock._lab import tree, vitals
from penstock._lab.tree import Process


def me():
    return tree.read(os.getpid())


def test_a_sample_of_this_process():
    seen = vitals.Scale(time.monotonic()).weigh(time.monotonic(), os.getpid(), [me()], 3)
    assert seen.processes == 1
    assert seen.batches == 3
    assert seen.main_rss > 1 << 20
    assert seen.tree_pss > 1 << 20
    assert seen.main_maps > 10
    assert seen.main_fds > 2
    assert seen.cpu_s > 0


def test_page_tables_are_not_walked_at_every_sample():
    began = time.monotonic()
    scale = vitals.Scale(began)
    first = scale.weigh(began, os.getpid(), [me()], 0)
    held = bytearray(os.urandom(1 << 20) * 40)
    second = scale.weigh(began + 0.01, os.getpid(), [me()], 0)
    assert second.tree_pss == first.tree_pss
    assert second.main_rss > first.main_rss
    del held


def test_cpu_time_of_those_that_have_ended_still_counts():
    scale = vitals.Scale(0.0)
    both = [Process(-1, 0, "S", 1, "a", 0, 100), Process(-2, 0, "S", 2, "b", 0, 50)]
    assert scale.weigh(1.0, -1, both, 0).cpu_s == scale.weigh(1.1, -1, both[:1], 0).cpu_s > 0


def test_the_burden_does_not_count_shared_pages_twice():
    both = [me(), me()]
    alone = vitals.Burden().weigh(1.0, [me()], doubt=0)
    assert vitals.Burden().weigh(1.0, both, doubt=0) < 2.2 * alone
    assert vitals.Burden().weigh(1.0, both, doubt=1 << 60) > 1.8 * vitals.rss(os.getpid())


def test_the_burden_follows_growth_between_two_exact_looks():
    burden = vitals.Burden()
    at = time.monotonic()
    before = burden.weigh(at, [me()], doubt=0)
    held = bytearray(os.urandom(1 << 20) * 60)
    assert burden.weigh(at + 0.001, [me()], doubt=0) > before + (40 << 20)
    del held


def test_how_a_zombie_ended():
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    while tree.read(child.pid).is_alive:
        time.sleep(0.01)
    assert vitals.exit_status(tree.read(child.pid)) == 3
    child.wait()
    assert vitals.exit_status(me()) is None


def test_names_in_shared_memory_that_still_exist():
    maps = (
        "7f00-7f01 rw-s 0 0:19 5 /dev/shm/torch_1_2_3\n"
        "7f01-7f02 rw-s 0 0:19 6 /dev/shm/sem.mp-x (deleted)\n"
        "7f02-7f03 r-xp 0 8:1 7 /lib/libc.so\n"
    )
    assert vitals.shared_names(maps) == {"torch_1_2_3"}


def test_torchs_workers_are_known_by_their_name():
    assert vitals.is_worker(Process(1, 0, "S", 1, "pt_data_worker", 0))
    assert not vitals.is_worker(Process(1, 0, "S", 1, "python", 0))


def test_what_is_gone_weighs_nothing():
    assert vitals.rss(99999999) == vitals.descriptors(99999999) == vitals.weight(99999999).pss == 0
    assert vitals.Scale(0.0).shm_used(99999999) == 0
    assert vitals.waits_in(99999999) == ""
