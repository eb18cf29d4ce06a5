"""Workers that stop getting anywhere, next to workers that are merely slow.

Time does not decide here: limits are far below the sleeps that must survive them, and a worker that is stuck
is stuck for ever.
"""

from __future__ import annotations

from textwrap import dedent

import pytest

# One sample misbehaves; the loader is told to be impatient.
SCENE = """
    import ctypes, select, socket, subprocess, warnings
    READ, WRITE = os.pipe()
    LONG_S = 3.0

    def pipe():
        os.read(READ, 1)

    def received():
        here, there = socket.socketpair()
        here.recv(1)

    def lock():
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        held = threading.Lock()
        held.acquire()
        held.acquire()

    def stopped():
        os.kill(os.getpid(), signal.SIGSTOP)

    def in_c():
        ctypes.PyDLL(None).read(READ, ctypes.create_string_buffer(1), 1)  # holds the GIL

    def compute():
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            pass

    def sleep():
        time.sleep(LONG_S)

    def sleep_in_c():
        ctypes.CDLL(None).sleep(int(LONG_S))

    def select_nothing():
        select.select([], [], [], LONG_S)

    def child():
        program = f"import time\\nend = time.time() + {LONG_S}\\nwhile time.time() < end: pass"
        subprocess.run([sys.executable, "-S", "-c", program])

    def thread():
        one = threading.Thread(target=sleep)
        one.start()
        one.join()

    def trickle():
        here, there = socket.socketpair()
        def drip():
            for _ in range(int(LONG_S / 0.1)):
                select.select([], [here], [], 0)
                threading.Event().wait(0.1)
                there.send(b"x")
        threading.Thread(target=drip, daemon=True).start()
        for _ in range(int(LONG_S / 0.1)):
            here.recv(1)

    class Odd(Pictures):
        def __init__(self, how, index=5, length=16):
            super().__init__(length)
            self.how, self.index = how, index

        def __getitem__(self, index):
            if index == self.index:
                globals()[self.how]()
            return picture(index)

    def epoch(loader):
        seen = 0
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                for number, batch in enumerate(loader):
                    assert is_right(batch, range(2 * number, 2 * number + 2))
                    seen += 1
            except errors.WorkerLostError as error:
                say("error", str(error).splitlines())
        for each in caught:
            say("warning", str(each.message).splitlines())
        say("seen", seen)
"""


def played(stage, body):
    """What an epoch said, as (kind, text) of each line."""
    out = stage.run(dedent(SCENE) + dedent(body))
    return [tuple(line.split(" ", 1)) for line in out.splitlines()]


def limits(how, **options):
    words = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return f"epoch(DataLoader(Odd({how!r}), batch_size=2, num_workers=2, {words}))"


STUCK = ["pipe", "received", "lock", "stopped", "in_c"]


@pytest.mark.parametrize("how", STUCK)
def test_a_stuck_worker_is_ended_and_named(stage, how):
    lines = played(stage, limits(how, stall_warn=None, stall_timeout=0.8))
    assert [kind for kind, _ in lines] == ["error", "seen"]
    assert "[PS606] DataLoader worker 0 (pid " in lines[0][1]
    assert "sample index 5 (position 1 in its batch)" in lines[0][1]


@pytest.mark.parametrize("how", STUCK)
def test_a_stuck_worker_is_warned_about_once(stage, how):
    lines = played(stage, limits(how, stall_warn=0.4, stall_timeout=2.0))
    assert [kind for kind, _ in lines] == ["error", "warning", "warning", "seen"]  # and its successor
    text = lines[1][1]
    assert "[PS606] DataLoader worker 0 (pid " in text
    assert "it was fetching sample index 5 (position 1 in its batch)" in text
    assert ("it is stopped" if how == "stopped" else f"in {how}") in text


SLOW = ["compute", "sleep", "sleep_in_c", "select_nothing", "child"]


@pytest.mark.parametrize("how", SLOW)
def test_a_slow_sample_is_left_alone(stage, how):
    assert played(stage, limits(how, stall_warn=0.8, stall_timeout=0.8)) == [("seen", "8")]


@pytest.mark.parametrize("how", ["thread", "trickle"])
def test_a_sign_of_life_is_never_ended(stage, how):
    assert played(stage, limits(how, stall_warn=None, stall_timeout=0.8)) == [("seen", "8")]


def test_a_stuck_worker_is_waited_for_when_that_is_asked_for(stage):
    lines = played(
        stage,
        f"""
    threading.Timer(2.0, os.write, (WRITE, b"x")).start()
    {limits("pipe", stall_warn=0.4, stall_timeout=None)}
    """,
    )
    assert [kind for kind, _ in lines] == ["warning", "seen"]
    assert lines[1][1] == "8"
    assert "it is left alone, because stall_timeout is None" in lines[0][1]


def test_the_timeout_of_torch_keeps_its_meaning(stage):
    lines = played(stage, limits("sleep", timeout=0.5, stall_timeout=0.1))
    assert [kind for kind, _ in lines] == ["error", "seen"]
    assert "[PS602] DataLoader timed out after 0.5 seconds" in lines[0][1]


def test_a_warning_that_is_an_error_costs_no_batch(stage):
    lines = played(
        stage,
        """
    threading.Timer(2.0, os.write, (WRITE, b"x")).start()
    iterator = iter(DataLoader(Odd("pipe"), batch_size=2, num_workers=2, stall_warn=0.4))
    count = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while count < 8:
            try:
                next(iterator)
                count += 1
            except UserWarning as caught:
                say("raised", "PS606" in str(caught))
    say("seen", count)
    """,
    )
    assert lines == [("raised", "True"), ("seen", "8")]


def test_a_worker_that_is_stuck_between_epochs_is_an_error(stage):
    # The first epoch was left early; what its workers still have must end before the next can begin.
    lines = played(
        stage,
        """
    loader = DataLoader(
        Odd("pipe", 2), batch_size=2, num_workers=2, persistent_workers=True, stall_timeout=0.8
    )
    next(iter(loader))
    epoch(loader)
    """,
    )
    assert [kind for kind, _ in lines] == ["error", "seen"]
    assert "PS606" in lines[0][1]


def test_the_signal_for_a_stack_is_left_to_a_program_that_uses_it(stage):
    lines = played(
        stage,
        f"""
    signal.signal(signal.SIGRTMAX - 3, lambda *_: say("mine"))
    {limits("pipe", stall_warn=0.4, stall_timeout=1.2)}
    """,
    )
    assert [line[0] for line in lines] == ["error", "warning", "warning", "seen"]
    assert "its last calls" not in lines[1][1]


@pytest.mark.parametrize("how", ["segfault", "abort", "SIGBUS"])
def test_a_crash_is_told_with_its_sample_and_its_stack(stage, how):
    with stage.play(
        dedent(SCENE) + f"epoch(DataLoader(Deadly('{how}', 5), batch_size=2, num_workers=2))"
    ) as one:
        text = one.hear("error")
        assert one.wait() == 0, one.err
        one.leaves_nothing()
    assert "so did its predecessors, at the same sample index 5" in text
    assert "in die" in text
    assert "in __getitem__" in text
    words = {"segfault": "Unexpected segmentation fault", "abort": "", "SIGBUS": "Unexpected bus error"}
    assert words[how] in one.err  # torch's own words


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_boxes_leave_no_descriptor_behind(stage, method):
    out = stage.run(f"""
    loader = DataLoader(Pictures(8), batch_size=2, num_workers=2, multiprocessing_context="{method}")
    list(loader)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        list(loader)
        next(iter(loader))
    gc.collect()
    say(len(os.listdir("/proc/self/fd")) - before)
    """)
    assert out == "0\n"
