"""Ctrl-C, SIGTERM, SIGKILL, SIGSTOP: whatever hits the consumer, and whenever, nothing survives it."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from .stage import SOON_S, children, wait_until

# Printed in the test's name, so that a failure can be repeated.
SEEDS = [int(os.environ["CHAOS_SEED"])] if "CHAOS_SEED" in os.environ else [1, 2, 3]

ASLEEP = """
    iterator = iter(DataLoader({dataset}, batch_size=1, num_workers=2{options}))
    next(iterator)
    next(iterator)
"""

# Births, epochs and ends, one after another, for as long as it lasts.
BUSY = """
    say("ready")
    while True:
        loader = DataLoader(Pictures(6), batch_size=1, num_workers=2)
        for number, batch in enumerate(loader):
            if number == 4:
                break
"""

IN_THE_LOOP = """
    for batch in DataLoader(Pictures(6), batch_size=1, num_workers=2):
        say("training")
        time.sleep(1000)
"""

PERSISTENT = """
    loader = DataLoader(Sleepers(awake=2), batch_size=1, num_workers=2, persistent_workers=True)
    for batch in loader:
        pass
"""


def asleep(dataset="Sleepers(awake=1)", options=""):
    return ASLEEP.format(dataset=dataset, options=options)


SLEEPING = {
    "in a sleep": asleep(),
    "in a C function": asleep("DeepSleepers(awake=1)"),
    "with persistent workers": PERSISTENT,
}


# ---- Ctrl-C -------------------------------------------------------------------------------------


def assert_interrupted_once(consumer):
    start = time.monotonic()
    assert consumer.wait(SOON_S) == -signal.SIGINT
    consumer.leaves_nothing(SOON_S - (time.monotonic() - start))
    assert consumer.err.count("Traceback") == 1, consumer.err
    assert consumer.err.count("KeyboardInterrupt") == 1, consumer.err
    assert "Exception ignored" not in consumer.err


@pytest.mark.parametrize("script", SLEEPING.values(), ids=SLEEPING)
def test_ctrl_c_while_the_consumer_waits_is_one_interrupt(stage, script):
    with stage.play(script) as consumer:
        consumer.hear("asleep")
        consumer.signal_group(signal.SIGINT)
        assert_interrupted_once(consumer)


def test_ctrl_c_in_the_training_step_is_one_interrupt(stage):
    with stage.play(IN_THE_LOOP) as consumer:
        consumer.hear("training")
        consumer.signal_group(signal.SIGINT)
        assert_interrupted_once(consumer)


@pytest.mark.parametrize("seed", SEEDS)
def test_ctrl_c_at_any_moment_is_one_interrupt(stage, seed):
    wait_s = random.Random(seed).uniform(0.0, 0.4)
    with stage.play(BUSY) as consumer:
        consumer.hear("ready")
        time.sleep(wait_s)
        consumer.signal_group(signal.SIGINT)
        assert_interrupted_once(consumer)


@pytest.mark.parametrize("call", [1, 2, 3])
def test_ctrl_c_in_a_zygote_that_is_just_being_forked_does_not_run_the_consumers_code_twice(stage, call):
    # A signal that reaches the child before it has left the consumer's code must not unwind that code.
    with stage.play(f"""
        consumer, calls = os.getpid(), []
        def interrupt(frame, event, argument):
            name = frame.f_code.co_name
            if event == "call" and "penstock" in frame.f_code.co_filename and name != "_leave_to_parent":
                calls.append(name)
                if len(calls) == {call}:
                    sys.setprofile(None)
                    os.kill(os.getpid(), signal.SIGINT)
        os.register_at_fork(after_in_child=lambda: sys.setprofile(interrupt))
        try:
            list(DataLoader(Pictures(6), batch_size=1, num_workers=1))
        except BaseException as error:
            say("unwound", os.getpid() == consumer, type(error).__name__)
    """) as consumer:
        consumer.wait()
        consumer.leaves_nothing()
        assert "unwound False" not in consumer.out


def test_a_second_ctrl_c_while_the_first_is_being_obeyed_leaves_nothing(stage):
    with stage.play(asleep()) as consumer:
        consumer.hear("asleep")
        consumer.signal_group(signal.SIGINT)
        time.sleep(0.05)  # into the time that busy workers are given
        consumer.signal_group(signal.SIGINT)
        assert consumer.wait(SOON_S) == -signal.SIGINT
        consumer.leaves_nothing()


def test_an_interrupt_that_is_caught_leaves_a_process_that_can_go_on(stage):
    # As in a notebook: the user stops a cell twice, in a hurry, and runs the next one.
    with stage.play("""
        def cell():
            for batch in DataLoader(Sleepers(awake=2), batch_size=1, num_workers=2):
                pass
        try:
            cell()
        except KeyboardInterrupt:
            say("caught")
        try:
            time.sleep(0.5)
        except KeyboardInterrupt:
            pass
        gc.collect()
        list(DataLoader(Numbers(2), num_workers=1))
        say("children", open(f"/proc/self/task/{os.getpid()}/children").read())
        say("memory", "memfd:penstock" in open("/proc/self/maps").read())
    """) as consumer:
        consumer.hear("asleep")
        consumer.signal(signal.SIGINT)
        time.sleep(0.05)
        consumer.signal(signal.SIGINT)
        assert consumer.hear("children") == ""
        assert consumer.hear("memory") == "False"
        assert consumer.wait() == 0
        consumer.leaves_nothing()


def test_ctrl_c_while_clean_workers_are_being_prepared_is_one_interrupt(stage):
    with stage.play("""
        say("ready")
        list(DataLoader(Pictures(6), num_workers=1, multiprocessing_context="spawn"))
    """) as consumer:
        consumer.hear("ready")
        assert wait_until(consumer.family, SOON_S)  # a fresh interpreter that imports torch
        time.sleep(0.3)
        consumer.signal_group(signal.SIGINT)
        assert_interrupted_once(consumer)


def test_ctrl_c_with_clean_workers_is_one_interrupt(stage):
    with stage.play(asleep(options=', multiprocessing_context="spawn"')) as consumer:
        consumer.hear("asleep")
        consumer.signal_group(signal.SIGINT)
        assert_interrupted_once(consumer)


# ---- the consumer is killed ---------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGSEGV])
def test_no_worker_survives_a_consumer_that_dies_of_a_signal(stage, number):
    with stage.play(asleep()) as consumer:
        consumer.hear("asleep")
        consumer.signal(number)
        assert consumer.wait(SOON_S) == -number
        consumer.leaves_nothing()


def test_no_worker_survives_sigterm_to_the_whole_group(stage):
    with stage.play(asleep()) as consumer:
        consumer.hear("asleep")
        consumer.signal_group(signal.SIGTERM)
        assert consumer.wait(SOON_S) == -signal.SIGTERM
        consumer.leaves_nothing()


@pytest.mark.parametrize("script", SLEEPING.values(), ids=SLEEPING)
def test_no_worker_survives_a_killed_consumer(stage, script):
    with stage.play(script) as consumer:
        consumer.hear("asleep")
        consumer.kill()
        consumer.wait(SOON_S)
        consumer.leaves_nothing()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_worker_survives_a_consumer_that_is_killed_at_any_moment(stage, seed):
    wait_s = random.Random(seed).uniform(0.0, 0.4)
    with stage.play(BUSY) as consumer:
        consumer.hear("ready")
        time.sleep(wait_s)
        consumer.kill()
        consumer.wait(SOON_S)
        consumer.leaves_nothing()


def test_no_clean_worker_survives_a_killed_consumer(stage):
    with stage.play(asleep(options=', multiprocessing_context="forkserver"')) as consumer:
        consumer.hear("asleep")
        consumer.kill()
        consumer.wait(SOON_S)
        consumer.leaves_nothing()


def test_nothing_survives_a_consumer_that_is_killed_while_clean_workers_are_being_prepared(stage):
    with stage.play("""
        list(DataLoader(Pictures(6), num_workers=1, multiprocessing_context="spawn"))
    """) as consumer:
        assert wait_until(consumer.family, SOON_S)  # a fresh interpreter that imports torch
        time.sleep(0.3)
        consumer.kill()
        consumer.wait(SOON_S)
        consumer.leaves_nothing()


def test_stopped_workers_do_not_survive_a_killed_consumer(stage):
    with stage.play("""
        iterator = iter(DataLoader(Pictures(), batch_size=1, num_workers=2))
        next(iterator)
        for worker in iterator._workers:
            os.kill(worker.pid, signal.SIGSTOP)
        say("stopped")
        signal.pause()
    """) as consumer:
        consumer.hear("stopped")
        consumer.kill()
        consumer.wait(SOON_S)
        consumer.leaves_nothing()


def test_stopped_workers_do_not_hold_up_the_end(stage):
    out = stage.run("""
        iterator = iter(DataLoader(Pictures(), batch_size=1, num_workers=2))
        next(iterator)
        for worker in iterator._workers:
            os.kill(worker.pid, signal.SIGSTOP)
        start = time.monotonic()
        del iterator
        say(time.monotonic() - start)
    """)
    assert float(out) < SOON_S


def test_a_stopped_zygote_does_not_hold_up_the_end(stage):
    out = stage.run("""
        iterator = iter(DataLoader(Pictures(), batch_size=1, num_workers=2))
        next(iterator)
        (zygote,) = open(f"/proc/self/task/{os.getpid()}/children").read().split()
        os.kill(int(zygote), signal.SIGSTOP)
        start = time.monotonic()
        del iterator
        say(time.monotonic() - start)
    """)
    assert float(out) < SOON_S


def test_nothing_survives_a_group_that_was_stopped_before_its_consumer_is_killed(stage):
    # Ctrl-Z, or a frozen job, and then `kill -9`.
    with stage.play(asleep()) as consumer:
        consumer.hear("asleep")
        consumer.signal_group(signal.SIGSTOP)
        consumer.kill()
        consumer.wait(SOON_S)
        consumer.leaves_nothing()


# ---- the consumer lives on ----------------------------------------------------------------------


def test_a_consumer_that_was_stopped_goes_on_where_it_was(stage):
    with stage.play("""
        for number, batch in enumerate(DataLoader(Pictures(40), batch_size=4, num_workers=2)):
            assert is_right(batch, range(4 * number, 4 * number + 4))
            if number == 2:
                say("here")
                os.kill(os.getpid(), signal.SIGSTOP)
        say(number)
    """) as consumer:
        consumer.hear("here")
        state = Path(f"/proc/{consumer.pid}/stat")
        assert wait_until(lambda: " T " in state.read_text(), SOON_S)
        consumer.signal(signal.SIGCONT)
        assert consumer.ends_well().endswith("9\n")


def test_a_group_that_was_stopped_goes_on_where_it_was(stage):
    with stage.play("""
        for number, batch in enumerate(DataLoader(Pictures(40), batch_size=4, num_workers=2)):
            assert is_right(batch, range(4 * number, 4 * number + 4))
            say("batch")
        say("last", number)
    """) as consumer:
        consumer.hear("batch")
        consumer.signal_group(signal.SIGSTOP)
        consumer.signal_group(signal.SIGCONT)
        assert consumer.ends_well().endswith("last 9\n")


def test_a_signal_with_a_handler_disturbs_nothing(stage):
    out = stage.run("""
        seen = []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        right = []
        for _ in range(3):
            for number, batch in enumerate(DataLoader(Pictures(24), batch_size=2, num_workers=2)):
                right.append(is_right(batch, range(2 * number, 2 * number + 2)))
        signal.setitimer(signal.ITIMER_REAL, 0)
        say(right == [True] * 36, len(seen) > 20)
    """)
    assert out == "True True\n"


def test_a_signal_to_the_group_that_the_consumer_handles_does_not_kill_its_workers(stage):
    # Clusters announce the end of a job with SIGUSR1 to every process of it.
    with stage.play("""
        noted = []
        signal.signal(signal.SIGUSR1, lambda *_: noted.append(1))
        iterator = iter(DataLoader(Pictures(40), batch_size=4, num_workers=2))
        next(iterator)
        say("ready")
        while not noted:
            time.sleep(0.01)
        say("rest", len(list(iterator)))
    """) as consumer:
        consumer.hear("ready")
        consumer.signal_group(signal.SIGUSR1)
        assert consumer.hear("rest") == "9"


def test_sigterm_as_an_exception_ends_as_any_exception(stage):
    with stage.play(f"""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    {asleep()}""") as consumer:
        consumer.hear("asleep")
        consumer.signal(signal.SIGTERM)
        assert consumer.wait(SOON_S) == 5
        consumer.leaves_nothing()
        assert consumer.err == ""


TIMEOUTS = """
    class Enough(Exception):
        pass
    def enough(*_):
        raise Enough
    signal.signal(signal.SIGALRM, enough)
    # An exception that falls into a finalizer is Python's to report.
    sys.unraisablehook = lambda *_: None
"""


def test_a_timeout_of_the_users_own_in_next_loses_nothing_for_the_next_epoch(stage):
    out = stage.run(f"""{TIMEOUTS}
    loader = DataLoader(Pictures(24), batch_size=2, num_workers=2, persistent_workers=True)
    raised = set()
    for attempt in range(60):
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0003 + attempt % 20 * 0.0003)
                for batch in loader:
                    pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)  # the alarm may come here, too
        except Exception as error:
            raised.add(type(error).__name__)
    say(sorted(raised))
    right = [is_right(batch, range(2 * n, 2 * n + 2)) for n, batch in enumerate(loader)]
    say(right == [True] * 12)
    """)
    assert out.splitlines() == ["['Enough']", "True"]


def test_an_iterator_after_a_timeout_of_the_users_own_in_next_is_neither_wrong_nor_stuck(stage):
    # A batch may be lost with the exception that came instead of it, and the iterator may say that it
    # cannot go on; but nothing may be wrong, be awaited for ever, or fail without words.
    out = stage.run(f"""{TIMEOUTS}
    def ask(iterator, after_s):
        try:
            signal.setitimer(signal.ITIMER_REAL, after_s)
            return next(iterator)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    wrong, failures = 0, set()
    for epoch in range(10):
        iterator, last, times = iter(DataLoader(Pictures(24), batch_size=1, num_workers=2)), -1, 0
        while True:
            times += 1
            try:
                batch = ask(iterator, 0.0001 + times % 17 * 0.0002)
            except Enough:
                continue
            except (StopIteration, errors.WorkerLostError):
                break
            except Exception as error:
                failures.add(repr(error)[:60])
                break
            index = int(batch[0, 0, 0]) // 31
            wrong += index <= last or not is_right(batch, [index])
            last = index
    say("wrong", wrong, sorted(failures))
    """)
    assert out == "wrong 0 []\n"


# ---- what programs do to signals -----------------------------------------------------------------


@pytest.mark.parametrize("whom", ["worker", "zygote"])
def test_a_program_with_default_sigpipe_is_not_killed_by_a_dead_worker(stage, whom):
    # Command-line tools set it, so that `tool | head` ends quietly.
    out = stage.run(f"""
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        options = {{"prefetch_factor": 4, "max_restarts": 0}}
        iterator = iter(DataLoader(Pictures(24), batch_size=1, num_workers=1, **options))
        next(iterator)
        (zygote,) = map(int, open(f"/proc/self/task/{{os.getpid()}}/children").read().split())
        victim = zygote if "{whom}" == "zygote" else iterator._workers[0].pid
        os.kill(victim, signal.SIGKILL)
        if victim == zygote:
            os.waitid(os.P_PID, zygote, os.WEXITED | os.WNOWAIT)
        else:
            while os.path.exists(f"/proc/{{victim}}"):
                time.sleep(0.01)
        try:
            for batch in iterator:
                pass
        except errors.WorkerLostError as error:
            say(error.code)
        del iterator
        say("alive")
    """)
    assert out == "PS601\nalive\n"


def test_a_program_that_ignores_sigchld_works(stage):
    out = stage.run("""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for _ in range(2):
            say(len(list(DataLoader(Pictures(8), batch_size=2, num_workers=2))))
    """)
    assert out == "4\n4\n"


def test_a_program_that_reaps_all_its_children_works(stage):
    out = stage.run("""
        def reap(*_):
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
        signal.signal(signal.SIGCHLD, reap)
        for _ in range(2):
            say(len(list(DataLoader(Pictures(8), batch_size=2, num_workers=2))))
    """)
    assert out == "4\n4\n"


def test_a_program_that_blocks_signals_works(stage):
    out = stage.run("""
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
        say(len(list(DataLoader(Pictures(8), batch_size=2, num_workers=2))))
        for batch in DataLoader(Sleepers(awake=2), batch_size=1, num_workers=2):
            break
    """)
    assert out.startswith("4\n")


def test_the_zygote_and_the_workers_are_the_only_processes(stage):
    with stage.play(asleep()) as consumer:
        consumer.hear("asleep")
        (zygote,) = [pid for pid in consumer.family() if children(pid)]
        assert consumer.family() == {zygote} | children(zygote)
        assert len(children(zygote)) == 2
