"""Workers and zygotes die, and nothing is lost, repeated or out of order."""

from __future__ import annotations

from textwrap import dedent

import pytest

START_METHODS = ["fork", "spawn", "forkserver"]

KILLING = dedent("""
    def hands(iterator):
        return [process.pid for process in iterator._workers]

    def epoch(loader, every, whom):
        iterator = iter(loader)
        wrong, count, kills = 0, 0, 0
        for batch in iterator:
            wrong += not is_right(batch, [count])
            count += 1
            if count % every == 0:
                pid = whom(iterator)
                try:
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass
        say("wrong", wrong, "of", count, "killed", kills > 0)

    def worker(iterator):
        return hands(iterator)[kinds.randrange(2)]

    def zygote(iterator):
        return iterator._runtime._backend.zygote.pid

    import random
    kinds = random.Random(7)
""")


@pytest.mark.parametrize("method", START_METHODS)
@pytest.mark.parametrize(("whom", "every"), [("worker", 20), ("zygote", 60)])
@pytest.mark.parametrize("options", ["", ", persistent_workers=True", ", prefetch_factor=8"], ids=str)
def test_every_batch_comes_once_and_in_order(stage, method, whom, every, options):
    out = stage.run(
        KILLING
        + dedent(f"""
    method = "{method}"
    loader = DataLoader(Pictures(200), batch_size=1, num_workers=2, multiprocessing_context=method{options})
    for _ in range(2):
        epoch(loader, {every}, {whom})
    """)
    )
    assert out == "wrong 0 of 200 killed True\n" * 2


def test_without_order_every_batch_comes_once(stage):
    out = stage.run(
        KILLING
        + dedent("""
    loader = DataLoader(Pictures(200), batch_size=1, num_workers=2, in_order=False)
    iterator, seen = iter(loader), []
    for count, batch in enumerate(iterator):
        index = next(k for k in range(200) if is_right(batch, [k]))
        seen.append(index)
        if count % 25 == 0:
            os.kill(worker(iterator), signal.SIGKILL)
    say(sorted(seen) == list(range(200)))
    """)
    )
    assert out == "True\n"


def test_batches_that_are_kept_stay_right_when_their_worker_dies(stage):
    out = stage.run(
        KILLING
        + dedent("""
    iterator, kept = iter(DataLoader(Pictures(60), batch_size=1, num_workers=2)), []
    for count, batch in enumerate(iterator):
        kept.append(batch)
        if count % 10 == 0:
            os.kill(worker(iterator), signal.SIGKILL)
    say(all(is_right(batch, [count]) for count, batch in enumerate(kept)), len(kept))
    """)
    )
    assert out == "True 60\n"


@pytest.mark.parametrize("death", ["os.kill(os.getpid(), signal.SIGILL)", "os._exit(3)", "os.abort()"])
def test_a_sample_that_kills_is_named_after_few_deaths_and_the_others_arrive(stage, death):
    out = stage.run(
        f"""
    if os.path.exists("deaths"):
        os.remove("deaths")

    class Mined(Pictures):
        def __getitem__(self, index):
            if index == 77:
                with open("deaths", "a") as file:
                    file.write("x")
                {death}
            return super().__getitem__(index)

    iterator, seen, words = iter(DataLoader(Mined(200), batch_size=4, num_workers=2)), 0, ""
    while True:
        try:
            next(iterator)
            seen += 1
        except StopIteration:
            break
        except RuntimeError as error:
            words = str(error)
    say(seen, "sample index 77" in words, len(open("deaths").read()) <= 4)
    """
    )
    assert out == "49 True True\n"


def test_a_worker_that_cannot_start_is_an_error_and_not_a_loop(stage):
    out = stage.run(
        """
    def init(worker):
        os._exit(9)
    try:
        next(iter(DataLoader(Pictures(8), num_workers=2, worker_init_fn=init)))
    except RuntimeError as error:
        say("PS601" in str(error), "exit code 9" in str(error))
    """
    )
    assert out == "True True\n"


def test_random_numbers_of_a_successor_are_not_those_of_its_predecessor(stage):
    out = stage.run(
        """
    class Drawing:
        def __len__(self):
            return 6
        def __getitem__(self, index):
            return torch.rand(4)

    iterator = iter(DataLoader(Drawing(), batch_size=1, num_workers=1, prefetch_factor=1))
    first = next(iterator)
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    rest = list(iterator)
    say(len(rest), any(torch.equal(first, each) for each in rest[1:]))
    """
    )
    assert out == "5 False\n"


@pytest.mark.parametrize("method", START_METHODS)
def test_a_sample_that_kills_is_skipped_where_the_policy_says_so(stage, method):
    out = stage.run(
        f"""
    class Mined(Pictures):
        def __getitem__(self, index):
            if index == 77:
                os._exit(3)
            return super().__getitem__(index)

    options = {{"num_workers": 2, "multiprocessing_context": "{method}", "on_error": "skip"}}
    loader = DataLoader(Mined(200), batch_size=4, **options)
    for _ in range(2):
        say(sum(len(batch) for batch in loader), sorted(set(loader.errors.indices)))
    """
    )
    assert out == "199 [77]\n" * 2


def test_a_killed_worker_of_a_stream_with_a_state_goes_on_where_it_was(stage):
    out = stage.run(
        """
    from torch.utils.data import IterableDataset, get_worker_info

    class Stream(IterableDataset):
        def __init__(self):
            self.at = 0
        def __iter__(self):
            info = get_worker_info()
            while self.at < 60:
                self.at += 1
                yield info.id * 1000 + self.at - 1
            self.at = 0
        def state_dict(self):
            return self.at
        def load_state_dict(self, at):
            self.at = at

    iterator, seen = iter(DataLoader(Stream(), batch_size=4, num_workers=2)), []
    for count, batch in enumerate(iterator):
        seen += batch.tolist()
        if count in (3, 10):
            os.kill(iterator._workers[count % 2].pid, signal.SIGKILL)
    say(sorted(seen) == [*range(60), *range(1000, 1060)])
    """
    )
    assert out == "True\n"


@pytest.mark.parametrize(("option", "end"), [("raise", "PS607"), ("replay", "True")])
def test_a_killed_worker_of_a_stream_without_a_state(stage, option, end):
    out = stage.run(
        f"""
    from torch.utils.data import IterableDataset, get_worker_info

    class Stream(IterableDataset):
        def __iter__(self):
            worker = get_worker_info().id
            return iter(range(worker * 1000, worker * 1000 + 60))

    loader = DataLoader(Stream(), batch_size=4, num_workers=2, on_iterable_crash="{option}")
    iterator, seen = iter(loader), []
    try:
        for count, batch in enumerate(iterator):
            seen += batch.tolist()
            if count == 5:
                os.kill(iterator._workers[1].pid, signal.SIGKILL)
        say(sorted(seen) == [*range(60), *range(1000, 1060)])
    except errors.WorkerLostError as error:
        say(error.code)
    """
    )
    assert out == end + "\n"


@pytest.mark.parametrize("method", START_METHODS)
def test_a_worker_that_leaks_is_replaced_between_two_batches(stage, method):
    out = stage.run(
        f"""
    class Hoarder(Pictures):
        kept = []
        def __getitem__(self, index):
            self.kept.append(bytearray(os.urandom(1 << 20) * 8))
            time.sleep(0.02)
            return super().__getitem__(index)

    options = {{"multiprocessing_context": "{method}", "max_worker_memory": 128 << 20, "max_restarts": 0}}
    iterator = iter(DataLoader(Hoarder(120), batch_size=2, num_workers=2, **options))
    first = [process.pid for process in iterator._workers]
    right = [is_right(batch, [2 * count, 2 * count + 1]) for count, batch in enumerate(iterator)]
    say(len(right), all(right), first != [process._pid for process in iterator._workers])
    """
    )
    assert out == "60 True True\n"
