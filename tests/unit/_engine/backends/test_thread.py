"""Workers as threads."""

from __future__ import annotations

import threading

import pytest
from torch.utils.data import get_worker_info

from penstock._engine.backends.thread import ThreadBackend
from penstock._engine.events import Answered, Exhausted, Rewound
from penstock.errors import DataError

from .jobs import Doubles, iterable_job, map_job

LIMIT_S = 30


@pytest.fixture
def start():
    """Backends that are closed at the end."""
    made = []

    def begin(job):
        made.append(ThreadBackend(job))
        return made[-1]

    yield begin
    for backend in made:
        backend.close()


def heard(backend, count):
    """The next events."""
    got = []
    while len(got) < count:
        events = backend.wait(LIMIT_S)
        assert events
        got += events
    return got


def test_a_ticket_is_answered(start):
    backend = start(map_job())
    assert backend.send(0, 7, 2, [1, 2]) is True
    (event,) = heard(backend, 1)
    assert event[:3] == (0, 7, 2)
    assert backend.open(event.payload) == [2, 4]


def test_every_worker_answers_its_own_tickets(start):
    backend = start(map_job(workers=3))
    for number in range(6):
        backend.send(number % 3, number, 0, [number])
    assert sorted((event.worker, event.number) for event in heard(backend, 6)) == [
        (0, 0), (0, 3), (1, 1), (1, 4), (2, 2), (2, 5),
    ]  # fmt: skip


def test_nothing_is_heard_when_nothing_was_asked(start):
    assert start(map_job()).wait(0) == []


def test_an_exception_is_raised_with_its_sample(start):
    backend = start(map_job())
    backend.send(0, 0, 0, [1, 13])
    (event,) = heard(backend, 1)
    with pytest.raises(ValueError, match="unlucky") as caught:
        backend.open(event.payload)
    assert str(caught.value) == "unlucky"
    assert getattr(caught.value, "__notes__", ["sample index: 13 (position 1 in its batch)"]) == [
        "sample index: 13 (position 1 in its batch)"
    ]


def test_stop_iteration_in_a_map_style_dataset_is_an_error(start):
    class Stops:
        def __getitem__(self, index):
            raise StopIteration

    backend = start(map_job(Stops()))
    backend.send(0, 0, 0, [1])
    (event,) = heard(backend, 1)
    with pytest.raises(DataError, match="PS502"):
        backend.open(event.payload)


def test_an_iterable_dataset_ends_for_its_worker(start):
    backend = start(iterable_job())
    for number in range(3):
        backend.send(0, number, 0, [None] * 9)
    backend.rewind(None)
    events = heard(backend, 3)
    assert [type(event) for event in events] == [Answered, Exhausted, Rewound]


def test_an_epoch_begins_anew_after_a_rewind(start):
    backend = start(iterable_job())
    backend.send(0, 0, 0, [None] * 9)
    backend.send(0, 1, 0, [None] * 9)
    backend.rewind(None)
    backend.send(0, 0, 0, [None] * 9)
    assert [type(event) for event in heard(backend, 4)] == [Answered, Exhausted, Rewound, Answered]


def test_user_code_can_ask_who_it_is(start):
    class Asks(Doubles):
        def __getitem__(self, index):
            info = get_worker_info()
            return info.id, info.num_workers, info.seed

    backend = start(map_job(Asks(), workers=2))
    backend.send(1, 0, 0, [0])
    (event,) = heard(backend, 1)
    assert backend.open(event.payload) == [(1, 2, 101)]
    assert get_worker_info() is None


def test_the_init_function_is_called_once_in_each_worker(start):
    called = []
    backend = start(map_job(workers=2, init_fn=called.append))
    for number in range(4):
        backend.send(number % 2, number, 0, [0])
    heard(backend, 4)
    assert sorted(called) == [0, 1]


def test_an_init_function_that_fails_is_told_with_the_first_ticket(start):
    def init(worker):
        raise RuntimeError("no licence")

    backend = start(map_job(init_fn=init))
    backend.send(0, 0, 0, [0])
    (event,) = heard(backend, 1)
    with pytest.raises(RuntimeError, match="no licence"):
        backend.open(event.payload)


def test_closing_ends_the_threads():
    backend = ThreadBackend(map_job(workers=3))
    assert [thread.exitcode for thread in backend.threads] == [None] * 3
    backend.close()
    backend.close()
    assert [thread.exitcode for thread in backend.threads] == [0] * 3


def test_a_worker_in_the_middle_of_a_sample_is_not_waited_for_long(monkeypatch):
    release, entered = threading.Event(), threading.Event()

    class Slow(Doubles):
        def __getitem__(self, index):
            entered.set()
            release.wait(LIMIT_S)
            return index

    monkeypatch.setattr("penstock._engine.backends.thread.CLOSE_S", 0.0)
    backend = ThreadBackend(map_job(Slow()))
    backend.send(0, 0, 0, [0])
    entered.wait(LIMIT_S)
    backend.close()
    assert backend.threads[0].is_alive()
    release.set()
    backend.threads[0].join(LIMIT_S)
    assert not backend.threads[0].is_alive()


def test_discarding_needs_nothing(start):
    backend = start(map_job())
    backend.send(0, 0, 0, [0])
    backend.discard(heard(backend, 1)[0].payload)
