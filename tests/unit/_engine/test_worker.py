"""A worker in this very process, with its channel in our hands."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.utils.data._utils as torch_utils
from torch.utils.data import IterableDataset, default_collate, get_worker_info
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data.dataloader import _DatasetKind

from penstock._arena.codec import Place, decode
from penstock._arena.segment import Segment
from penstock._arena.slab import SMALLEST
from penstock._base import host, libc
from penstock._engine import failure, worker
from penstock._engine.channel import Channel, pair
from penstock._engine.job import Job
from penstock._engine.messages import (
    Assign,
    Exhausted,
    Failed,
    Filled,
    Rewind,
    Rewound,
    Signs,
    Spawn,
    Verdict,
)
from penstock._engine.resume import Resume
from penstock._engine.rows import LARGE
from penstock._engine.worker import Worker, seed_worker
from penstock.errors import DataError

JOB = Job(_DatasetKind.Map, None, True, default_collate, False, 100, None, 4, None, "forked")


class Lines:
    def __getitem__(self, index):
        if index == 13:
            raise ValueError("unlucky")
        return torch.full((3,), float(index)), index


class Count(IterableDataset):
    def __iter__(self):
        return iter([torch.zeros(2), torch.ones(2), torch.ones(2)])


@pytest.fixture(autouse=True)
def this_process(monkeypatch):
    """Put back all that a worker changes in its process."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    monkeypatch.setattr(torch_utils.signal_handling, "_set_worker_signal_handlers", lambda: None)
    monkeypatch.setattr(torch_utils.worker, "_worker_info", None)
    monkeypatch.setattr(
        torch_collate, "default_collate_fn_map", dict(torch_collate.default_collate_fn_map), raising=True
    )
    monkeypatch.setattr(libc, "name_process", lambda name: None)
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


class Bench:
    """The consumer's side of one worker."""

    def __init__(self, job, number=1, resume=None):
        here, there = pair()
        self.channel = Channel(here)
        order = Spawn(number, resume=None if resume is None else tuple(resume))
        self.worker = Worker(job, order, Channel(there, is_patient=True))
        self.segments = {}

    def assign(self, number, indices, slab=0, attempt=0, given_up=(), expected=0, nbytes=0):
        fds = []
        if slab not in self.segments:
            self.segments[slab] = Segment.create()
            fds = [self.segments[slab].fd]
        self.channel.send(Assign(number, attempt, indices, slab, nbytes, expected, given_up), fds)

    def serve(self):
        """Let the worker answer all that was sent."""
        self.channel._sock.shutdown(1)  # the worker reads the end-of-file after it
        self.worker.serve()
        return [parcel.message for parcel in self.channel.receive_nowait()]

    def batch(self, filled):
        view = memoryview(Segment(self.segments[filled.slab].fd, filled.nbytes).map().whole).cast("B")
        return decode(view, Place(*filled.place))

    def close(self):
        self.channel.close()
        self.worker._channel.close()
        self.worker._writer.close()
        for segment in self.segments.values():
            segment.close()


@pytest.fixture
def bench():
    """Workers of given jobs, put away at the end."""
    made = []

    def build(resume=None, **changes):
        made.append(Bench(replace(JOB, **changes), resume=resume))
        return made[-1]

    yield build
    for each in made:
        each.close()


def error(failed):
    return failure.unpack(failure.Failure(*failed.failure))


# ---- answers ------------------------------------------------------------------------------------


def test_a_ticket_is_answered_with_its_batch(bench):
    one = bench(dataset=Lines())
    one.assign(7, [2, 5], attempt=3)
    (filled,) = one.serve()
    assert filled[:4] == (1, 7, 3, 0)
    assert filled.nbytes == SMALLEST
    assert filled.is_kept is False
    rows, labels = one.batch(filled)
    assert rows.tolist() == [[2, 2, 2], [5, 5, 5]]
    assert labels.tolist() == [2, 5]


def test_tickets_are_answered_in_turn(bench):
    one = bench(dataset=Lines())
    for number in range(3):
        one.assign(number, [number], slab=number)
    assert [filled.number for filled in one.serve()] == [0, 1, 2]


def test_a_slab_is_used_again(bench):
    one = bench(dataset=Lines())
    one.assign(0, [2])
    one.assign(1, [5], nbytes=SMALLEST)
    _, second = one.serve()
    assert one.batch(second)[1].tolist() == [5]


def test_a_slab_is_made_as_large_as_batches_are_expected_to_be(bench):
    one = bench(dataset=Lines())
    one.assign(0, [2], expected=5 * SMALLEST)
    assert one.serve()[0].nbytes == 5 * SMALLEST


def test_slabs_that_were_given_up_are_forgotten(bench):
    one = bench(dataset=Lines())
    one.assign(0, [2], slab=0)
    one.assign(1, [2], slab=1, given_up=(0,))
    one.serve()
    assert list(one.worker._writer._known) == [1]


def test_a_batch_that_user_code_kept_is_told(bench):
    kept = []

    def collate(samples):
        kept.append(default_collate(samples))
        return kept[-1]

    one = bench(dataset=Lines(), collate_fn=collate)
    one.assign(0, [2])
    assert one.serve()[0].is_kept is True


def test_an_exception_is_answered_with_its_sample(bench):
    one = bench(dataset=Lines())
    one.assign(0, [2, 13])
    (failed,) = one.serve()
    assert type(failed) is Failed
    assert failed[:4] == (1, 0, 0, 0)
    assert type(error(failed)) is ValueError
    assert str(error(failed)).endswith("ValueError: unlucky\nsample index: 13 (position 1 in its batch)\n")


def test_a_worker_goes_on_after_an_exception(bench):
    one = bench(dataset=Lines())
    one.assign(0, [13])
    one.assign(1, [2], slab=1)
    assert [type(answer) for answer in one.serve()] == [Failed, Filled]


def test_a_batch_that_cannot_be_handed_over_names_the_part(bench):
    one = bench(dataset={5: 1}, collate_fn=lambda samples: {"x": [(x for x in ())]})
    one.assign(0, [5])
    told = error(one.serve()[0])
    assert type(told) is DataError
    assert str(told) == (
        "[PS501] worker 1 made a batch that cannot be handed over: `batch['x'][0]` is a generator\n"
        "  why:  the batch is of sample indices [5]; TypeError: cannot pickle 'generator' object\n"
        "  fix:  return plain data from the dataset and the collate function\n"
        "  more: penstock explain PS501"
    )


def test_a_machine_without_memory_is_told(bench, monkeypatch):
    one = bench(dataset=Lines())
    one.assign(0, [2])
    monkeypatch.setattr(host, "memory_available", lambda: 0)
    assert error(one.serve()[0]).code == "PS701"


def test_a_slab_that_could_not_be_had_is_told_with_its_own_size(bench, monkeypatch):
    one = bench(dataset=Lines())
    one.assign(0, [2], slab=0)
    one.assign(1, [2], slab=1, expected=10 * SMALLEST)
    monkeypatch.setattr(host, "memory_available", lambda: 2 * SMALLEST)
    _, failed = one.serve()
    assert failed.nbytes <= one.segments[1].nbytes


def test_stop_iteration_in_a_map_style_dataset_is_an_exception(bench):
    class Stops:
        def __getitem__(self, index):
            raise StopIteration

    one = bench(dataset=Stops())
    one.assign(0, [1])
    assert error(one.serve()[0]).code == "PS502"


def test_large_samples_are_collated_where_they_lie(bench):
    one = bench(dataset=[torch.full((LARGE,), float(number)) for number in range(4)])
    one.assign(0, [3, 1])
    (filled,) = one.serve()
    assert filled.is_kept is False
    assert filled.place[0] == 2 * 4 * LARGE  # the table follows the one tensor, nothing was copied again
    batch = one.batch(filled)
    assert batch.shape == (2, LARGE)
    assert batch[:, 0].tolist() == [3, 1]


def test_a_slab_is_free_after_an_exception_among_large_samples(bench):
    class Breaks:
        def __getitem__(self, index):
            if index:
                raise ValueError("bad")
            return torch.zeros(LARGE)

    one = bench(dataset=Breaks())
    one.assign(0, [0, 1])
    assert one.serve()[0].is_kept is False


# ---- iterable datasets --------------------------------------------------------------------------


def test_an_iterable_dataset_ends(bench):
    one = bench(dataset=Count(), kind=_DatasetKind.Iterable)
    for number in range(3):
        one.assign(number, [None, None], slab=number)
    answers = one.serve()
    assert [type(answer) for answer in answers] == [Filled, Filled, Exhausted]
    assert one.batch(answers[1]).tolist() == [[1, 1]]
    assert answers[2] == (1, 2, 0, 2, 0)


def test_every_ticket_after_the_end_is_answered(bench):
    one = bench(dataset=Count(), kind=_DatasetKind.Iterable)
    for number in range(5):
        one.assign(number, [None, None], slab=number)
    assert [answer.slab for answer in one.serve()] == [0, 1, 2, 3, 4]


def test_an_epoch_begins_anew_after_a_rewind(bench):
    one = bench(dataset=Count(), kind=_DatasetKind.Iterable)
    one.assign(0, [None] * 9, slab=0)
    one.assign(1, [None] * 9, slab=1)
    one.channel.send(Rewind(None))
    one.assign(0, [None] * 9, slab=2)
    assert [type(answer) for answer in one.serve()] == [Filled, Exhausted, Rewound, Filled]


# ---- the start ----------------------------------------------------------------------------------


def test_the_init_function_gets_the_workers_number(bench):
    called = []
    bench(dataset=Lines(), init_fn=called.append).serve()
    assert called == [1]


def test_an_init_function_that_fails_is_told_with_the_first_ticket(bench):
    def init(number):
        raise RuntimeError("no licence")

    one = bench(dataset=Lines(), init_fn=init)
    one.assign(0, [2])
    one.assign(1, [2], slab=1)
    first, second = map(error, one.serve())
    assert "no licence" in str(first)
    assert "the worker could not be started" in str(second)


def test_an_iterator_that_cannot_be_made_is_told_with_the_first_ticket(bench):
    one = bench(dataset=5, kind=_DatasetKind.Iterable)
    one.assign(0, [None])
    assert "'int' object is not iterable" in str(error(one.serve()[0]))


def test_an_iterator_that_cannot_be_made_again_is_told_after_the_rewind(bench):
    class Once:
        def __init__(self):
            self.calls = 0

        def __iter__(self):
            self.calls += 1
            return iter([1] if self.calls == 1 else 5)

    one = bench(dataset=Once(), kind=_DatasetKind.Iterable)
    one.channel.send(Rewind(None))
    one.assign(0, [None])
    told, failed = one.serve()
    assert told == Rewound(1)
    assert "'int' object is not iterable" in str(error(failed))


def test_user_code_can_ask_who_it_is(bench):
    seen = []

    class Asks:
        def __getitem__(self, index):
            info = get_worker_info()
            seen.append((info.id, info.num_workers, info.seed, info.dataset))
            return index

    dataset = Asks()
    one = bench(dataset=dataset)
    one.assign(0, [1])
    one.serve()
    assert seen == [(1, 4, 101, dataset)]


def test_random_numbers_are_torchs():
    seed = seed_worker(100, 1)
    drawn = random.random(), torch.rand(1).item(), np.random.rand()
    random.seed(101)
    torch.manual_seed(101)
    np.random.seed(torch_utils.worker._generate_state(100, 1))
    assert seed == 101
    assert drawn == (random.random(), torch.rand(1).item(), np.random.rand())


def test_the_workers_life_ends_when_the_consumer_hangs_up(bench, monkeypatch):
    one = bench(dataset=Lines())
    one.channel.close()
    worker.work(one.worker._job, Spawn(0), one.worker._channel)


def test_warming_up_leaves_nothing_behind():
    worker.warm_up()


# ---- the first samples, and the place in a stream -----------------------------------------------


class Stream(IterableDataset):
    """Counts, and knows where it is."""

    def __init__(self, end=40):
        self.at, self.end = 0, end

    def state_dict(self):
        return self.at

    def load_state_dict(self, state):
        self.at = state

    def __iter__(self):
        while self.at < self.end:
            self.at += 1
            yield self.at - 1


STREAM = {"kind": _DatasetKind.Iterable, "is_watched": True}


def ask(one, tickets, size=4):
    for number in range(tickets):
        one.assign(number, [None] * size, slab=number)


def batches(one, messages):
    return [one.batch(each).tolist() for each in messages if isinstance(each, Filled)]


def test_a_worker_tells_of_its_first_samples_before_the_answer_that_ends_them(bench):
    one = bench(dataset=Stream(), **STREAM)
    ask(one, 5)
    kinds = [type(each) for each in one.serve()]
    assert kinds == [Filled, Filled, Filled, Signs, Filled, Filled]


def test_a_worker_that_is_not_watched_tells_nothing(bench):
    one = bench(dataset=Stream(), kind=_DatasetKind.Iterable)
    ask(one, 5)
    answers = one.serve()
    assert {type(each) for each in answers} == {Filled}
    assert {each.state for each in answers} == {None}


@pytest.mark.parametrize(
    ("is_sharded", "expected"),
    [(True, [[1, 5, 9, 13], [17, 21, 25, 29]]), (False, [[0, 1, 2, 3], [4, 5, 6, 7]])],
)
def test_a_worker_waits_for_the_verdict(bench, is_sharded, expected):
    one = bench(dataset=Stream(), cure=True, **STREAM)
    ask(one, 2)
    one.channel.send(Verdict(is_sharded))
    signs, *answers = one.serve()
    assert isinstance(signs, Signs)
    assert len(signs.prefix) == 16
    assert batches(one, answers) == expected


def test_tickets_that_wait_for_a_verdict_are_void_after_a_rewind(bench):
    one = bench(dataset=Stream(), cure=True, **STREAM)
    ask(one, 2)
    one.channel.send(Rewind(None))
    assert [type(each) for each in one.serve()] == [Signs, Exhausted, Exhausted, Rewound, Signs]


def test_new_values_of_attributes_come_with_a_rewind(bench):
    import pickle

    one = bench(dataset=Stream(), **STREAM)
    one.channel.send(Rewind(None, 0, ((("at",), pickle.dumps(7)),)))
    ask(one, 1)
    assert batches(one, one.serve()) == [[7, 8, 9, 10]]


def test_the_state_of_a_stream_comes_with_every_answer(bench):
    import pickle

    one = bench(dataset=Stream(10), **STREAM)
    ask(one, 4)
    states = [pickle.loads(each.state) for each in one.serve() if isinstance(each, Filled)]
    assert states == [4, 8, 10]


@pytest.mark.parametrize("cure", [False, True])
def test_a_fresh_worker_takes_up_any_stream_where_it_was_lost(bench, cure):
    """For each batch after which a worker may be lost: state and replay lead to the same rest."""
    options = {"cure": cure, **STREAM}

    def run(tickets, resume=None):
        one = bench(resume, dataset=Stream(60), **options)
        if cure and resume is None:
            one.channel.send(Verdict(True))
        ask(one, tickets, size=2)
        messages = [each for each in one.serve() if isinstance(each, Filled)]
        return batches(one, messages), [each.state for each in messages]

    whole, states = run(7)
    for lost in range(1, 7):
        assert run(7 - lost, Resume(None, lost, [None] * 2, cure))[0] == whole[lost:]
        if states[lost - 1] is not None:
            assert run(7 - lost, Resume(states[lost - 1], 0, [None] * 2, cure))[0] == whole[lost:]
    assert [state is None for state in states] == [cure] * 2 + [
        False
    ] * 5  # the first 16 samples were made ahead
