"""A worker that dies where no successor is wanted: told at once, with its cause, and nothing hangs."""

from __future__ import annotations

from textwrap import dedent

import pytest

from .stage import SOON_S

DEATHS = {
    "SIGKILL": "is killed by signal: Killed (SIGKILL)",
    "SIGTERM": "is killed by signal: Terminated (SIGTERM)",
    "SIGBUS": "is killed by signal: Bus error (SIGBUS)",
    "segfault": "is killed by signal: Segmentation fault (SIGSEGV)",
    "abort": "is killed by signal: Aborted (SIGABRT)",
    "SIGRTMIN": "is killed by signal: Real-time signal 0 (SIGRTMIN)",
    "os._exit(0)": "exited unexpectedly with exit code 0",
    "os._exit(7)": "exited unexpectedly with exit code 7",
    "sys.exit(3)": "exited unexpectedly with exit code 3",
}

# Time is taken from the last batch before the death.
EPOCH = """
    def epoch(loader):
        seen = 0
        start = time.monotonic()
        try:
            for batch in loader:
                start = time.monotonic()
                seen += 1
            say("end after", seen)
        except Exception as error:
            say("took", time.monotonic() - start)
            say("after", seen)
            say(type(error).__name__, str(error).splitlines())
"""


def epoch(stage, body, **options):
    """Run one epoch that fails; return the seconds that it took, the batches before, and the message."""
    with stage.play(dedent(EPOCH) + dedent(body), **options) as consumer:
        took = float(consumer.hear("took"))
        after = int(consumer.hear("after"))
        message = consumer.hear("")
        assert consumer.wait() == 0, consumer.err
        consumer.leaves_nothing()
        return took, after, message


@pytest.mark.parametrize(("how", "words"), DEATHS.items())
def test_a_death_is_told_with_its_cause_and_its_samples(stage, how, words):
    took, after, message = epoch(
        stage, f"epoch(DataLoader(Deadly({how!r}, 5), batch_size=2, num_workers=2, max_restarts=0))"
    )
    assert took < SOON_S
    assert after == 2  # batches 0 and 1; 2 holds sample 5
    assert message.startswith("WorkerLostError ['[PS601] DataLoader worker 0 (pid(s) ")
    assert words in message
    assert "it was loading sample indices [4, 5]" in message


def test_a_signal_without_a_name_is_told_by_its_number(stage):
    _, _, message = epoch(
        stage,
        """
    class Odd(Pictures):
        def __getitem__(self, index):
            os.kill(os.getpid(), signal.SIGRTMIN + 3)
            signal.pause()
    epoch(DataLoader(Odd(4), num_workers=1, max_restarts=0))
    """,
    )
    assert message.startswith("WorkerLostError ['[PS601]")
    assert "37" in message


def test_a_worker_that_is_killed_from_outside_is_told_at_once(stage):
    took, _, message = epoch(
        stage,
        """
    iterator = iter(DataLoader(Sleepers(awake=1), batch_size=1, num_workers=2, max_restarts=0))
    victim = iterator._workers[1].pid
    threading.Timer(0.1, os.kill, (victim, signal.SIGKILL)).start()
    epoch(iterator)
    """,
    )
    assert took < SOON_S
    assert "DataLoader worker 1 (pid(s)" in message
    assert "sample indices [1]" in message


@pytest.mark.parametrize("options", ["", ", persistent_workers=True"], ids=["", "persistent"])
def test_an_idle_worker_that_is_killed_is_not_awaited(stage, options):
    # All that it was given it has done: its death matters when it is given more.
    _, after, message = epoch(
        stage,
        f"""
    iterator = iter(DataLoader(Pictures(12), batch_size=1, num_workers=2, max_restarts=0{options}))
    next(iterator)
    time.sleep(0.3)  # both have nothing left to do
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    while iterator._workers[0].is_alive():
        time.sleep(0.01)
    epoch(iterator)
    """,
    )
    assert after <= 5
    assert message.startswith("WorkerLostError ['[PS601] DataLoader worker 0 (pid(s) ")
    assert "SIGKILL" in message


def test_a_worker_that_dies_after_its_last_batch_costs_nothing(stage):
    out = stage.run("""
    iterator = iter(DataLoader(Pictures(4), batch_size=1, num_workers=2, max_restarts=0))
    next(iterator)
    time.sleep(0.3)
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    while iterator._workers[0].is_alive():
        time.sleep(0.01)
    say([is_right(batch, [n + 1]) for n, batch in enumerate(iterator)])
    """)
    assert out == "[True, True, True]\n"


@pytest.mark.parametrize("moment", ["idle", "busy", "first"])
def test_the_death_of_the_zygote_is_told_at_once(stage, moment):
    took, _, message = epoch(
        stage,
        f"""
    iterator = iter(DataLoader(Sleepers(awake=8), batch_size=1, num_workers=2, max_restarts=0))
    if "{moment}" != "first":
        next(iterator)
        time.sleep(0.2)  # all workers have done what they were given
    if "{moment}" == "busy":
        [next(iterator) for _ in range(7)]
    (zygote,) = map(int, open(f"/proc/self/task/{{os.getpid()}}/children").read().split())
    os.kill(zygote, signal.SIGKILL)
    os.waitid(os.P_PID, zygote, os.WEXITED | os.WNOWAIT)
    epoch(iterator)
    """,
    )
    assert took < SOON_S
    assert message.startswith("WorkerLostError ['[PS60"), message
    assert "errno -9" not in message


def test_the_death_of_a_clean_zygote_is_told_at_once(stage):
    took, _, message = epoch(
        stage,
        """
    options = {"batch_size": 1, "num_workers": 2, "max_restarts": 0, "multiprocessing_context": "spawn"}
    iterator = iter(DataLoader(Sleepers(awake=2), **options))
    next(iterator)
    threading.Timer(0.1, os.kill, (iterator._runtime._backend.zygote.pid, signal.SIGKILL)).start()
    epoch(iterator)
    """,
    )
    assert took < SOON_S
    assert message.startswith("WorkerLostError ['[PS601] DataLoader worker"), message


@pytest.mark.parametrize("where", ["init", "collate", "stream"])
def test_a_death_outside_of_the_samples_is_told_too(stage, where):
    took, _, message = epoch(
        stage,
        f"""
    class Ending(Stream):
        def __iter__(self):
            yield 0
            os._exit(9)
    def init(worker):
        os._exit(9)
    def collate(samples):
        os._exit(9)
    epoch({{
        "init": lambda: DataLoader(Pictures(4), num_workers=2, max_restarts=0, worker_init_fn=init),
        "collate": lambda: DataLoader(Pictures(4), num_workers=2, max_restarts=0, collate_fn=collate),
        "stream": lambda: DataLoader(Ending(4), num_workers=2, max_restarts=0),
    }}["{where}"]())
    """,
    )
    assert took < SOON_S
    assert message.startswith("WorkerLostError ['[PS601]")
    assert "exit code 9" in message


def test_after_a_death_the_error_stays_the_same(stage):
    out = stage.run("""
    iterator = iter(DataLoader(Deadly("SIGKILL", 1), batch_size=1, num_workers=1, max_restarts=0))
    next(iterator)
    for _ in range(3):
        try:
            next(iterator)
        except errors.WorkerLostError as error:
            say(error.code)
    """)
    assert out == "PS601\n" * 3


def test_after_a_death_a_new_iterator_starts_afresh(stage):
    out = stage.run("""
    loader = DataLoader(Deadly("SIGKILL", 5), batch_size=2, num_workers=2, max_restarts=0)
    for _ in range(2):
        try:
            list(loader)
        except errors.WorkerLostError as error:
            say(error.code)
    loader.dataset.index = -1
    say([is_right(batch, range(2 * n, 2 * n + 2)) for n, batch in enumerate(loader)] == [True] * 8)
    """)
    assert out == "PS601\nPS601\nTrue\n"


def test_after_a_death_a_loader_with_persistent_workers_is_not_stuck(stage):
    out = stage.run("""
    options = {"max_restarts": 0, "persistent_workers": True}
    loader = DataLoader(Deadly("SIGKILL", 5), batch_size=2, num_workers=2, **options)
    for _ in range(2):
        try:
            list(loader)
        except errors.WorkerLostError as error:
            say(error.code)
    """)
    assert out == "PS601\nPS601\n"


def test_persistent_workers_that_were_killed_between_epochs_are_not_awaited(stage):
    # The machine ran out of memory during validation: the workers of the training loader are gone.
    out = stage.run("""
    loader = DataLoader(Pictures(4), batch_size=2, num_workers=2, max_restarts=0, persistent_workers=True)
    list(loader)
    for worker in loader._iterator._workers:
        os.kill(worker.pid, signal.SIGKILL)
    for _ in range(2):
        try:
            say(len(list(loader)))
        except errors.WorkerLostError as error:
            say(error.code)
    """)
    assert set(out.split()) <= {"PS601", "2"}


def test_a_worker_that_dies_idle_in_a_persistent_epoch_is_not_awaited_in_the_next(stage):
    out = stage.run("""
    loader = DataLoader(Pictures(6), batch_size=1, num_workers=2, max_restarts=0, persistent_workers=True)
    iterator = iter(loader)
    [next(iterator) for _ in range(2)]
    time.sleep(0.3)  # all six are done
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    while iterator._workers[0].is_alive():
        time.sleep(0.01)
    say(len(list(iterator)))
    try:
        say(len(list(loader)))
    except errors.WorkerLostError as error:
        say(error.code)
    """)
    assert out in ("4\nPS601\n", "4\n6\n")


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_dataset_that_exits_is_told_on_every_backend(stage, backend):
    out = stage.run(f"""
    try:
        deadly, options = Deadly("sys.exit(3)", 1), {{"max_restarts": 0, "backend": "{backend}"}}
        for batch in DataLoader(deadly, batch_size=1, num_workers=2, **options):
            say("batch")
    except BaseException as error:
        say(type(error).__name__)
    """)
    assert out in ("batch\nWorkerLostError\n", "batch\nSystemExit\n")


def test_a_stopped_worker_is_told_when_the_user_set_a_timeout(stage):
    took, _, message = epoch(
        stage,
        """
    iterator = iter(DataLoader(Pictures(16), batch_size=1, num_workers=1, max_restarts=0, timeout=0.3))
    next(iterator)
    os.kill(iterator._workers[0].pid, signal.SIGSTOP)
    epoch(iterator)
    """,
    )
    assert 0.2 < took < SOON_S
    assert "PS602" in message


def test_a_stopped_worker_goes_on_when_it_is_continued(stage):
    out = stage.run("""
    iterator = iter(DataLoader(Pictures(16), batch_size=1, num_workers=2, max_restarts=0))
    victim = iterator._workers[0].pid
    right = [is_right(next(iterator), [0])]
    os.kill(victim, signal.SIGSTOP)
    threading.Timer(0.2, os.kill, (victim, signal.SIGCONT)).start()
    right += [is_right(batch, [n + 1]) for n, batch in enumerate(iterator)]
    say(right == [True] * 16)
    """)
    assert out == "True\n"


def test_a_worker_in_which_the_dataset_closes_every_descriptor_is_told(stage):
    took, _, message = epoch(
        stage,
        """
    class Daemon(Pictures):
        def __getitem__(self, index):
            os.closerange(3, 256)
            return picture(index)
    epoch(DataLoader(Daemon(4), num_workers=1, max_restarts=0))
    """,
    )
    assert took < SOON_S
    assert "[PS" in message


def test_a_worker_that_leaves_a_child_behind_ends_the_epoch_all_the_same(stage):
    # The child has copies of the worker's descriptors, and so keeps its channel open.
    with stage.play("""
    class Leaving(Pictures):
        def __getitem__(self, index):
            if index == 0 and os.fork() == 0:
                say("child", os.getpid())
                time.sleep(1000)
            return picture(index)
    start = time.monotonic()
    say("count", len(list(DataLoader(Leaving(8), batch_size=1, num_workers=2, max_restarts=0))))
    say("took", time.monotonic() - start)
    """) as consumer:
        assert consumer.hear("count") == "8"
        assert float(consumer.hear("took")) < SOON_S
        assert consumer.wait() == 0
