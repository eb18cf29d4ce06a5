"""A program that ends with iterators alive ends at once, quietly, and leaves nothing."""

from __future__ import annotations

import signal

import pytest

from .stage import SOON_S, describe, wait_until

ENDS = {
    "an iterator in a global": """
        iterator = iter(DataLoader(Pictures(), num_workers=2))
        next(iterator)
    """,
    "a loader with persistent workers": """
        loader = DataLoader(Pictures(), num_workers=2, persistent_workers=True)
        for batch in loader:
            break
    """,
    "several iterators": """
        loader = DataLoader(Pictures(), num_workers=1)
        iterators = [iter(loader), iter(loader), iter(DataLoader(Numbers(), num_workers=1))]
        [next(iterator) for iterator in iterators]
    """,
    "an iterator in a cycle": """
        class Trainer: pass
        trainer = Trainer()
        trainer.self, trainer.iterator = trainer, iter(DataLoader(Pictures(), num_workers=2))
        next(trainer.iterator)
    """,
    "an iterator in a suspended generator": """
        def batches():
            for batch in DataLoader(Pictures(), num_workers=2):
                yield batch
        generator = batches()
        next(generator)
    """,
    "an iterator in another module": """
        sys.modules["torch"].kept = iter(DataLoader(Pictures(), num_workers=2))
        next(sys.modules["torch"].kept)
    """,
    "batches in globals": """
        batches = list(DataLoader(Pictures(), num_workers=2))
        views = [batch[0, 1:].numpy() for batch in batches]
        torch.kept = batches[0]
    """,
    "an iterator with sleeping workers": """
        iterator = iter(DataLoader(Sleepers(awake=1), batch_size=1, num_workers=2))
        next(iterator)
    """,
    "an iterator of threads": """
        iterator = iter(DataLoader(Pictures(), num_workers=2, backend="thread"))
        next(iterator)
    """,
    "an iterator in a finished thread": """
        box = []
        def work():
            box.append(iter(DataLoader(Pictures(), num_workers=2)))
            next(box[0])
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """,
    "an iterator that a daemon thread is waiting on": """
        def work():
            for batch in DataLoader(Sleepers(awake=1), batch_size=1, num_workers=1):
                ready.set()
        ready = threading.Event()
        threading.Thread(target=work, daemon=True).start()
        ready.wait()
    """,
    "an epoch in a daemon thread": """
        def work():
            while True:
                for batch in DataLoader(Pictures(), batch_size=1, num_workers=1):
                    ready.set()
        ready = threading.Event()
        threading.Thread(target=work, daemon=True).start()
        ready.wait()
    """,
    "an epoch in a thread that is waited for": """
        def work():
            for batch in DataLoader(Pictures(), batch_size=1, num_workers=1):
                ready.set()
        ready = threading.Event()
        threading.Thread(target=work).start()
        ready.wait()
    """,
    "an iterator with a stopped zygote": """
        iterator = iter(DataLoader(Pictures(), num_workers=2))
        next(iterator)
        (zygote,) = map(int, open(f"/proc/self/task/{os.getpid()}/children").read().split())
        os.kill(zygote, signal.SIGSTOP)
    """,
    "an epoch in an exit hook": """
        import atexit
        atexit.register(lambda: say("hook", len(list(DataLoader(Numbers(4), num_workers=1)))))
    """,
    "clean workers": """
        iterator = iter(DataLoader(Sleepers(awake=1), num_workers=1, multiprocessing_context="spawn"))
        next(iterator)
    """,
}


@pytest.mark.parametrize("body", ENDS.values(), ids=ENDS)
def test_a_program_ends_at_once_with(stage, body):
    with stage.play(body + "\n        say('leaving')") as consumer:
        consumer.hear("leaving")
        status = stage.status_of(consumer.pid, SOON_S)
        assert status is not None, f"still there\n{consumer.err}\n{consumer.state()}"
        consumer.wait()
        assert (status, consumer.err) == (0, "")
        consumer.leaves_nothing()


def test_sys_exit_in_the_loop_keeps_its_status(stage):
    with stage.play("""
        for batch in DataLoader(Pictures(), num_workers=2):
            sys.exit(3)
    """) as consumer:
        assert consumer.wait() == 3
        assert consumer.err == ""
        consumer.leaves_nothing()


def test_an_exception_that_nobody_catches_is_the_only_one_in_the_output(stage):
    with stage.play("""
        for batch in DataLoader(Pictures(), num_workers=2):
            raise ValueError("a bad loss")
    """) as consumer:
        assert consumer.wait() == 1
        consumer.leaves_nothing()
        assert consumer.err.count("Traceback") == 1
        assert consumer.err.endswith("ValueError: a bad loss\n")


def test_os_exit_in_the_loop_leaves_nothing(stage):
    with stage.play("""
        for batch in DataLoader(Sleepers(awake=1), num_workers=2):
            os._exit(4)
    """) as consumer:
        assert consumer.wait() == 4
        consumer.leaves_nothing()


def test_a_crash_of_the_consumer_leaves_nothing(stage):
    with stage.play("""
        for batch in DataLoader(Sleepers(awake=1), num_workers=2):
            import ctypes
            ctypes.string_at(0)
    """) as consumer:
        assert consumer.wait() == -signal.SIGSEGV
        consumer.leaves_nothing()


def test_a_program_that_becomes_another_leaves_nothing(stage):
    with stage.play("""
        iterator = iter(DataLoader(Sleepers(awake=1), num_workers=2))
        next(iterator)
        os.execv("/bin/sleep", ["sleep", "1000"])
    """) as consumer:
        consumer.hear("asleep")
        # The new program knows nothing of the child that it inherits, and so never reaps it.
        assert wait_until(lambda: all(line.endswith(" Z") for line in describe(consumer.family())), SOON_S)


def test_development_mode_has_nothing_to_warn_of(stage):
    out = stage.run("""
        import warnings
        warnings.simplefilter("error")
        loader = DataLoader(Pictures(8), batch_size=2, num_workers=2)
        for _ in range(2):
            say(len(list(loader)))
        for batch in loader:
            break
        del loader, batch
        gc.collect()
    """)
    assert out == "4\n4\n"
