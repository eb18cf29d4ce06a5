"""An exception on its way from a worker to the consumer.

Guarantees:

* It always arrives: what cannot be pickled travels as text (torch's loader hangs there).
* It keeps its own type whenever that type can be had in the consumer, with torch's wording, the worker's
  traceback and the index of the sample.
"""

from __future__ import annotations

import pickle
import traceback
from typing import Any, NamedTuple

from torch._utils import KeyErrorMessage

from penstock.errors import DataError, PenstockError


class Failure(NamedTuple):
    """What a worker tells of an exception."""

    worker: int
    name: str  # of the exception's type
    text: str  # the traceback
    note: str  # which sample, which field; "" when unknown
    kind: bytes | None  # the type, pickled, if that works
    whole: bytes | None  # the exception itself, pickled, if that works


def describe(error: BaseException, worker: int, note: str = "", *, is_clean: bool = False) -> Failure:
    """Pack the exception for the journey. Called in the worker, while it is being handled.

    A clean worker has the classes of `__main__` by value, and sends them home the same way.
    """
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    kind, whole = _pickled(type(error), is_clean=is_clean), _pickled(error, is_clean=is_clean)
    return Failure(worker, type(error).__name__, text, note, kind, whole)


def unpack(failure: Failure) -> BaseException:
    """The exception to raise in the consumer."""
    whole = _unpickled(failure.whole)
    if isinstance(whole, PenstockError):
        return whole
    message = f"Caught {failure.name} in DataLoader worker process {failure.worker}.\nOriginal {failure.text}"
    if failure.note:
        message = f"{message.rstrip()}\n{failure.note}\n"
    kind = _unpickled(failure.kind)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return RuntimeError(message)
    if issubclass(kind, StopIteration):
        return _stop_iteration(failure)
    return _build(kind, message) or _annotated(whole, message) or RuntimeError(message)


def _build(kind: type[BaseException], message: str) -> BaseException | None:
    try:
        if kind is KeyError:
            return KeyError(KeyErrorMessage(message))  # repr() of a plain text would be unreadable
        if getattr(kind, "message", None):
            return kind(message=message)  # type: ignore[call-arg]  # it said that it has one
        return kind(message)
    except Exception:  # noqa: BLE001 - a constructor of the user's, with arguments we cannot know
        return None


def _annotated(whole: Any, message: str) -> BaseException | None:
    """The original object, for types that cannot be made from a text alone (HTTPError and the like)."""
    if not isinstance(whole, BaseException):
        return None
    if hasattr(whole, "add_note"):  # Python 3.11
        whole.add_note(message)
    return whole


def _stop_iteration(failure: Failure) -> DataError:
    return DataError(
        "PS502",
        f"worker {failure.worker} met StopIteration in a map-style dataset",
        why=f"{failure.note or 'it was raised while a batch was made'}\n{failure.text.rstrip()}",
        fix="raise IndexError or ValueError there: StopIteration would end the epoch silently",
    )


def _pickled(value: Any, *, is_clean: bool) -> bytes | None:
    try:
        data: bytes = _by_value(value) if is_clean else pickle.dumps(value, 5)
        pickle.loads(data)  # some types pickle and then cannot be rebuilt
    except Exception:  # noqa: BLE001 - whatever pickling user objects raises
        return None
    return data


def _by_value(value: Any) -> bytes:
    import cloudpickle

    data: bytes = cloudpickle.dumps(value, 5)
    return data


def _unpickled(data: bytes | None) -> Any:
    try:
        return None if data is None else pickle.loads(data)
    except Exception:  # noqa: BLE001 - as above, on the other side
        return None
