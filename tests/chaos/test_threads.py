"""Several threads of one consumer use loaders, fork, and drop batches, at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import DataLoader

from .datasets import Pictures, is_right
from .stage import SOON_S

pytestmark = pytest.mark.timeout(60)


def test_loaders_in_several_threads_do_not_disturb_each_other(stage):
    out = stage.run("""
        sys.setswitchinterval(1e-6)
        failures, until = [], time.monotonic() + 1.5
        def work():
            try:
                while time.monotonic() < until:
                    kept = list(DataLoader(Pictures(8), batch_size=2, num_workers=1))
                    for n, batch in enumerate(kept):
                        if not is_right(batch, (2 * n, 2 * n + 1)):
                            failures.append(n)
            except BaseException as error:
                failures.append(repr(error))
        threads = [threading.Thread(target=work) for _ in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        say(failures)
    """)
    assert out == "[]\n"


def test_a_loader_ends_although_another_thread_was_starting_one_when_it_began(stage):
    # Whatever is forked at that moment inherits the ends of channels that are not yet anybody's.
    out = stage.run("""
        sys.setswitchinterval(1e-6)
        kept, until, longest = [], time.monotonic() + 2, 0.0
        def open_many():
            while time.monotonic() < until and len(kept) < 10:
                kept.append(iter(DataLoader(Pictures(8), num_workers=1)))
        thread = threading.Thread(target=open_many)
        thread.start()
        while time.monotonic() < until:
            iterator = iter(DataLoader(Pictures(8), num_workers=1))
            next(iterator)
            start = time.monotonic()
            del iterator
            longest = max(longest, time.monotonic() - start)
        thread.join()
        say(longest)
    """)
    assert float(out) < SOON_S


def test_a_loader_ends_although_a_process_was_forked_while_it_began(stage):
    # The same with a fork that is the user's own.
    out = stage.run("""
        import multiprocessing
        sys.setswitchinterval(1e-6)
        context, until, longest = multiprocessing.get_context("fork"), time.monotonic() + 2, 0.0
        processes = []
        def fork_many():
            while time.monotonic() < until and len(processes) < 30:
                processes.append(context.Process(target=signal.pause))
                processes[-1].start()
        thread = threading.Thread(target=fork_many)
        thread.start()
        while time.monotonic() < until:
            iterator = iter(DataLoader(Pictures(8), num_workers=1))
            next(iterator)
            start = time.monotonic()
            del iterator
            longest = max(longest, time.monotonic() - start)
        thread.join()
        [process.kill() for process in processes]
        [process.join() for process in processes]
        say(longest)
    """)
    assert float(out) < SOON_S


def test_forks_of_another_thread_find_every_held_batch_protected(stage):
    # The hook that protects held batches runs in the thread that forks, while the other one delivers.
    with stage.play("""
        sys.setswitchinterval(1e-6)
        done, wrong = threading.Event(), []
        def fork_often():
            while not done.is_set():
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)
        thread = threading.Thread(target=fork_often)
        thread.start()
        until = time.monotonic() + 1.5
        try:
            while time.monotonic() < until:
                kept = []
                for n, batch in enumerate(DataLoader(Pictures(40), batch_size=1, num_workers=1)):
                    kept = [*kept[-5:], (n, batch)]
                    wrong.extend(n for n, old in kept if not is_right(old, [n]))
        finally:
            done.set()
        thread.join()
        say(wrong)
    """) as consumer:
        assert consumer.wait() == 0, consumer.err
        assert (consumer.out, consumer.err) == ("[]\n", "")


def test_clean_workers_for_two_threads_come_from_one_process(stage):
    out = stage.run("""
        def work():
            say(len(list(DataLoader(Pictures(4), num_workers=1, multiprocessing_context="spawn"))))
        threads = [threading.Thread(target=work) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        say("children", len(open(f"/proc/self/task/{os.getpid()}/children").read().split()))
    """)
    assert out.splitlines() == ["4", "4", "children 1"]


def test_batches_that_die_in_other_threads_are_never_overwritten_before():
    def is_item_right(item):
        number, batch = item
        return is_right(batch, (2 * number, 2 * number + 1))

    with ThreadPoolExecutor(2) as pool:
        loader = DataLoader(Pictures(120), batch_size=2, num_workers=2)
        assert list(pool.map(is_item_right, enumerate(loader))) == [True] * 60


def test_one_iterator_may_be_passed_from_thread_to_thread():
    box = [iter(DataLoader(Pictures(12), batch_size=2, num_workers=2))]
    right = []

    def take(number):
        right.append(is_right(next(box[0]), (2 * number, 2 * number + 1)))

    for number in range(6):
        thread = threading.Thread(target=take, args=(number,))
        thread.start()
        thread.join()
    assert right == [True] * 6
