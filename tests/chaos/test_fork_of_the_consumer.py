"""The consumer forks while it iterates: the child keeps what it held, the parent goes on, nobody disturbs."""

from __future__ import annotations

import os
import signal

import pytest

from .stage import SOON_S, wait_until

ENDS = ["os._exit(0)", "sys.exit(0)"]


@pytest.mark.parametrize("end", ENDS)
def test_a_child_sees_its_batch_unchanged_while_the_parent_goes_on(stage, end):
    out = stage.run(f"""
        loader = DataLoader(Pictures(48), batch_size=4, num_workers=2)
        iterator = iter(loader)
        held = next(iterator)
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(tell)
            os.read(told, 1)  # until the parent has had all batches
            say("child", is_right(held, range(4)))
            {end}
        os.close(told)
        del held
        say("parent", all([is_right(batch, range(4 * n + 4, 4 * n + 8)) for n, batch in enumerate(iterator)]))
        os.close(tell)
        say("status", os.waitpid(child, 0)[1])
    """)
    assert out.splitlines() == ["parent True", "child True", "status 0"]


@pytest.mark.parametrize("end", ENDS)
def test_a_child_that_ends_does_not_end_the_parents_workers(stage, end):
    out = stage.run(f"""
        iterator = iter(DataLoader(Pictures(16), batch_size=2, num_workers=2))
        right = [is_right(next(iterator), range(2))]
        child = os.fork()
        if child == 0:
            {end}
        say("status", os.waitpid(child, 0)[1])
        right += [is_right(batch, range(2 * n + 2, 2 * n + 4)) for n, batch in enumerate(iterator)]
        say(right == [True] * 8)
    """)
    assert out == "status 0\nTrue\n"


def test_a_child_that_asks_the_inherited_iterator_is_refused(stage):
    out = stage.run("""
        iterator = iter(DataLoader(Pictures(16), batch_size=2, num_workers=2))
        next(iterator)
        child = os.fork()
        if child == 0:
            try:
                next(iterator)
            except errors.SettingsError as error:
                say(error.code)
            os._exit(0)
        os.waitpid(child, 0)
        say(len(list(iterator)))
    """)
    assert out == "PS006\n7\n"


@pytest.mark.parametrize("persistent", [False, True])
def test_parent_and_child_can_both_iterate_the_same_loader(stage, persistent):
    out = stage.run(f"""
        loader = DataLoader(Pictures(16), batch_size=2, num_workers=1, persistent_workers={persistent})
        iterator = iter(loader)
        next(iterator)
        child = os.fork()
        if child == 0:
            say("child", all([is_right(batch, range(2 * n, 2 * n + 2)) for n, batch in enumerate(loader)]))
            sys.exit(0)
        right = [is_right(batch, range(2 * n + 2, 2 * n + 4)) for n, batch in enumerate(iterator)]
        os.waitpid(child, 0)
        say("parent", right == [True] * 7)
    """)
    assert sorted(out.splitlines()) == ["child True", "parent True"]


def test_processes_forked_after_an_epoch_do_not_write_into_each_others_batches(stage):
    # The loader keeps the memory of its last epoch for the next one: it must stay with one process.
    out = stage.run("""
        loader = DataLoader(Pictures(48), batch_size=4, num_workers=1)
        list(loader)
        pids = []
        for rank in range(2):
            pids.append(os.fork())
            if pids[-1] == 0:
                loader.dataset.__class__ = type("Ranked", (Pictures,), {
                    "__getitem__": lambda self, index: picture(index + 1000 * rank)})
                wrong = 0
                for _ in range(3):
                    for n, batch in enumerate(loader):
                        time.sleep(0.002)  # the training step
                        wrong += not is_right(batch, range(1000 * rank + 4 * n, 1000 * rank + 4 * n + 4))
                say("wrong batches:", wrong)
                sys.exit(0)
        for pid in pids:
            os.waitpid(pid, 0)
    """)
    assert out == "wrong batches: 0\n" * 2


def test_a_child_can_make_a_loader_of_its_own_while_the_parent_iterates(stage):
    out = stage.run("""
        iterator = iter(DataLoader(Pictures(16), batch_size=2, num_workers=1))
        next(iterator)
        child = os.fork()
        if child == 0:
            own = DataLoader(Pictures(16), batch_size=4, num_workers=1)
            say(all([is_right(batch, range(4 * n, 4 * n + 4)) for n, batch in enumerate(own)]))
            sys.exit(0)
        os.waitpid(child, 0)
        say(all([is_right(batch, range(2 * n + 2, 2 * n + 4)) for n, batch in enumerate(iterator)]))
    """)
    assert out == "True\nTrue\n"


def test_a_process_of_multiprocessing_verifies_the_batch_that_it_inherited(stage):
    out = stage.run("""
        import multiprocessing
        iterator = iter(DataLoader(Pictures(16), batch_size=4, num_workers=2))
        held, go = next(iterator), multiprocessing.get_context("fork").Event()
        def look():
            go.wait()
            say("child", is_right(held, range(4)))
        process = multiprocessing.get_context("fork").Process(target=look)
        process.start()
        del held
        for batch in iterator:
            batch.zero_()
        go.set()
        process.join()
        say("status", process.exitcode)
    """)
    assert out == "child True\nstatus 0\n"


def test_what_a_child_writes_to_the_memory_of_a_batch_is_never_seen_in_a_later_one(stage):
    out = stage.run("""
        iterator = iter(DataLoader(Pictures(64), batch_size=4, num_workers=1, prefetch_factor=1))
        held = next(iterator)
        stop_read, stop = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(stop)
            os.set_blocking(stop_read, False)
            while True:
                held.fill_(-1)
                try:
                    os.read(stop_read, 1)
                    os._exit(0)
                except BlockingIOError:
                    pass
        os.close(stop_read)
        del held
        say(all([is_right(batch, range(4 * n + 4, 4 * n + 8)) for n, batch in enumerate(iterator)]))
        os.close(stop)
        os.waitpid(child, 0)
    """)
    assert out == "True\n"


def test_a_child_that_outlives_the_consumer_keeps_its_batch_and_holds_up_no_worker(stage):
    with stage.play("""
        iterator = iter(DataLoader(Sleepers(awake=1), batch_size=1, num_workers=2))
        held = next(iterator)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        if os.fork() == 0:
            say("child", os.getpid())
            signal.sigwait({signal.SIGUSR1})
            say("right", is_right(held, range(1)))
            os._exit(0)
        signal.pause()
    """) as consumer:
        child = int(consumer.hear("child"))
        consumer.kill()
        consumer.wait()
        assert wait_until(lambda: consumer.family() == {child}, SOON_S), consumer.state()
        os.kill(child, signal.SIGUSR1)
        assert consumer.hear("right") == "True"


def test_many_children_that_hold_batches_do_not_stop_the_parent(stage):
    out = stage.run("""
        loader = DataLoader(Pictures(80), batch_size=4, num_workers=1, arena_bytes=2 << 20)
        told, tell = os.pipe()
        children = []
        for n, batch in enumerate(loader):
            assert is_right(batch, range(4 * n, 4 * n + 4))
            children.append(os.fork())
            if children[-1] == 0:
                os.close(tell)
                os.read(told, 1)
                os._exit(not is_right(batch, range(4 * n, 4 * n + 4)))
        os.close(tell)
        say([os.waitpid(child, 0)[1] for child in children] == [0] * 20)
    """)
    assert out == "True\n"


def test_the_interpreter_ends_at_once_although_a_forked_child_lives_on(stage):
    # The child has copies of every descriptor, also of those that tell clean workers to end.
    with stage.play("""
        list(DataLoader(Numbers(2), num_workers=1, multiprocessing_context="spawn"))
        if os.fork() == 0:
            time.sleep(1000)
        say("leaving")
    """) as consumer:
        consumer.hear("leaving")
        assert stage.status_of(consumer.pid, 0.9) == 0
