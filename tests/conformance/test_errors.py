"""An exception in the user's code keeps its type and text, and costs no other batch."""

from __future__ import annotations

import json
import warnings

import pytest

from .comparing import iterating
from .datasets import (
    Failing,
    Ints,
    OwnError,
    TwoArgumentsError,
    WorkerFacts,
    as_given,
    failing_collate,
    failing_init,
    outcomes,
)
from .samplers import FailingSampler

ERRORS = {
    "value": ValueError("no such image"),
    "runtime": RuntimeError("no such image"),
    "key": KeyError("no such image"),
    "index": IndexError("no such image"),
    "type": TypeError("no such image"),
    "os": OSError("no such image"),
    "file": FileNotFoundError("no such image"),
    "assertion": AssertionError("no such image"),
    "attribute": AttributeError("no such image"),
    "arithmetic": ZeroDivisionError("no such image"),
    "memory": MemoryError("no such image"),
    "not implemented": NotImplementedError("no such image"),
    "timeout": TimeoutError("no such image"),
    "end of file": EOFError("no such image"),
    "broken pipe": BrokenPipeError("no such image"),
    "recursion": RecursionError("no such image"),
    "own": OwnError("no such image"),
    "warning": UserWarning("no such image"),
    "plain": Exception("no such image"),
}


def shape(found):
    """What came, with each error as its type."""
    return [type(one) if isinstance(one, Exception) else one for one in found]


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_of_the_dataset_keeps_type_and_text(loader_class, kind):
    loader = loader_class(Failing(ERRORS[kind], size=1, bad=0), num_workers=1)
    (error,) = outcomes(loader)
    assert type(error) is type(ERRORS[kind])
    assert "no such image" in str(error)


def test_the_text_tells_worker_and_traceback(loader_class):
    (error,) = outcomes(loader_class(Failing(ValueError("bad"), size=1, bad=0), num_workers=1))
    assert "Caught ValueError in DataLoader worker process 0" in str(error)
    assert "in __getitem__" in str(error)
    assert "ValueError: bad" in str(error)


def test_the_traceback_of_a_key_error_is_readable(loader_class):
    (error,) = outcomes(loader_class(Failing(KeyError("missing"), size=1, bad=0), num_workers=1))
    assert "\n" in str(error)
    assert "KeyError: 'missing'" in str(error)


def test_the_cause_of_an_error_is_in_its_text(loader_class):
    class Chained(Ints):
        def __getitem__(self, index):
            try:
                {}["inner"]
            except KeyError as error:
                raise ValueError("outer") from error

    (error,) = outcomes(loader_class(Chained(1), num_workers=1))
    assert type(error) is ValueError
    assert "KeyError: 'inner'" in str(error)
    assert "direct cause" in str(error)


def test_an_error_without_text_keeps_its_type(loader_class):
    (error,) = outcomes(loader_class(Failing(OwnError(), size=1, bad=0), num_workers=1))
    assert type(error) is OwnError


def test_an_error_that_needs_two_arguments_keeps_its_text(loader_class):
    dataset = Failing(TwoArgumentsError(7, "no such image"), size=1, bad=0)
    (error,) = outcomes(loader_class(dataset, num_workers=1))
    assert isinstance(error, (RuntimeError, TwoArgumentsError))
    assert "no such image" in str(error)


def test_an_error_of_a_library_keeps_its_text(loader_class):
    class Parses(Ints):
        def __getitem__(self, index):
            return json.loads("{broken")

    (error,) = outcomes(loader_class(Parses(1), num_workers=1))
    assert isinstance(error, Exception)
    assert "Expecting property name" in str(error)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_iteration_goes_on_after_a_bad_sample(loader_class, num_workers):
    dataset = Failing(ValueError("bad"))
    loader = loader_class(dataset, batch_size=None, num_workers=num_workers)
    assert shape(outcomes(loader)) == [0, 1, ValueError, 3, 4, 5]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_bad_sample_costs_its_own_batch_only(loader_class, num_workers):
    loader = loader_class(
        Failing(ValueError("bad")), batch_size=2, num_workers=num_workers, collate_fn=as_given
    )
    assert shape(outcomes(loader)) == [[0, 1], ValueError, [4, 5]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_every_sample_may_be_bad(loader_class, num_workers):
    class Hopeless(Ints):
        def __getitem__(self, index):
            raise ValueError(f"bad {index}")

    found = outcomes(loader_class(Hopeless(5), num_workers=num_workers))
    assert shape(found) == [ValueError] * 5
    assert all(f"bad {number}" in str(error) for number, error in enumerate(found))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_of_the_collate_keeps_type_and_text(loader_class, num_workers):
    loader = loader_class(Ints(6), batch_size=2, num_workers=num_workers, collate_fn=failing_collate)
    found = outcomes(loader)
    assert shape(found) == [[0, 1], ArithmeticError, [4, 5]]
    assert "cannot batch this" in str(found[1])


def test_an_error_of_worker_init_keeps_type_and_text(loader_class):
    loader = loader_class(Ints(), num_workers=1, worker_init_fn=failing_init)
    with iterating(loader) as iterator, pytest.raises(PermissionError, match="may not start"):
        next(iterator)


def test_worker_init_is_not_called_without_workers(loader_class):
    assert len(list(loader_class(Ints(), worker_init_fn=failing_init))) == 10


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_of_the_sampler_comes_as_it_is(loader_class, num_workers):
    loader = loader_class(Ints(), sampler=FailingSampler(), num_workers=num_workers)
    with pytest.raises(LookupError, match=r"^the sampler broke$"), iterating(loader) as iterator:
        list(iterator)


def test_an_error_of_getitems_keeps_type_and_text(loader_class):
    class BadBulk(Ints):
        def __getitems__(self, indices):
            raise OwnError(f"cannot fetch {indices}")

    (error,) = outcomes(loader_class(BadBulk(2), batch_size=2, num_workers=1))
    assert type(error) is OwnError
    assert "cannot fetch [0, 1]" in str(error)


def test_an_error_in_the_length_comes_as_it_is(loader_class):
    class NoLength(Ints):
        def __len__(self):
            raise OwnError("length unknown")

    with pytest.raises(OwnError, match=r"^length unknown$"):
        list(loader_class(NoLength(), num_workers=1))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_can_be_used_again_after_an_error(loader_class, persistent):
    loader = loader_class(
        Failing(ValueError("bad")), batch_size=None, num_workers=2, persistent_workers=persistent
    )
    iterator = iter(loader)
    with pytest.raises(ValueError, match="bad"):
        list(iterator)
    assert shape(outcomes(loader)) == [0, 1, ValueError, 3, 4, 5]
    iterator._shutdown_workers()


def test_an_error_leaves_the_worker_alive(loader_class):
    class BadFirst(WorkerFacts):
        def __getitem__(self, index):
            if index == 1:
                raise ValueError("bad")
            return super().__getitem__(index)

    found = outcomes(loader_class(BadFirst(), batch_size=None, num_workers=1))
    assert len({one["pid"] for one in found if isinstance(one, dict)}) == 1


def test_a_warning_in_a_worker_is_no_error(loader_class, recwarn):
    class Warns(Ints):
        def __getitem__(self, index):
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                warnings.warn("only a warning", UserWarning, stacklevel=1)
            return index

    assert len(list(loader_class(Warns(2), num_workers=1))) == 2
    assert not recwarn.list
