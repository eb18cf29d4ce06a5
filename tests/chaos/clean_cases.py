"""The cases of `test_clean_workers.py`, as one program: each says True, or what went wrong.

Run as a script, without a guard; everything here is `__main__` to the workers.
"""

import dataclasses
import enum
import functools
import gc
import logging
import multiprocessing
import os
import pathlib
import re
import socket
import sys
import tempfile
import threading
import traceback
import types
from multiprocessing import shared_memory

import numpy as np
import torch

from penstock import DataLoader
from tests.chaos.datasets import Numbers, Pictures, is_right, picture, say

CONTEXT = multiprocessing.get_context("spawn")
CASES = []


def case(function):
    CASES.append(function)
    return function


def load(dataset, **options):
    options = {"num_workers": 1, "batch_size": None, "multiprocessing_context": CONTEXT, **options}
    return list(DataLoader(dataset, **options))


class Calls(Numbers):
    """Every sample is what a function says of an attribute."""

    def __init__(self, function, thing=None, length=2):
        super().__init__(length)
        self.function, self.thing = function, thing

    def __getitem__(self, index):
        return self.function(self.thing, index)


# ---- where classes and functions come from


@case
def a_class_of_main():
    return load(Calls(lambda thing, index: index)) == [0, 1]


@case
def a_class_inside_a_function():
    class Local(Numbers):
        def __getitem__(self, index):
            return super().__getitem__(index) + 1

    return load(Local(3)) == [1, 2, 3]


@case
def a_closure_and_a_lambda():
    shift = 5
    return load(Calls(lambda thing, index: thing(index) + shift, lambda index: index * 2)) == [5, 7]


@case
def a_collate_function_and_an_init_function_of_main():

    def init(worker):
        global mark  # noqa: PLW0603 - the point of the case
        mark = worker + 40

    def collate(samples):
        return [*samples, mark]

    return load(Numbers(2), batch_size=2, collate_fn=collate, worker_init_fn=init) == [[0, 1, 40]]


@case
def a_class_of_a_notebook():
    cell = """
class InACell(Numbers):
    def __getitem__(self, index):
        return Answer(index + offset)
class Answer:
    def __init__(self, value): self.value = value
offset = 7
"""
    notebook = types.ModuleType("__main__")
    notebook.Numbers = Numbers
    real, sys.modules["__main__"] = sys.modules["__main__"], notebook
    try:
        exec(compile(cell, "<ipython-input-1>", "exec"), vars(notebook))
        got = load(notebook.InACell(2))
        return [answer.value for answer in got] == [7, 8] and isinstance(got[0], notebook.Answer)
    finally:
        sys.modules["__main__"] = real


@case
def classes_of_main_that_come_back():
    @dataclasses.dataclass
    class Sample:
        image: torch.Tensor
        label: int

    class Kind(enum.Enum):
        CAT = 1

    got = load(
        Calls(
            lambda thing, index: (Sample(picture(index), index), Kind.CAT, thing(1)),
            functools.partial(max, 3),
        )
    )
    return [
        (type(sample) is Sample, is_right(sample.image[None], [sample.label]), kind is Kind.CAT, three)
        for sample, kind, three in got
    ] == [(True, True, True, 3)] * 2


class Mine(Exception):
    def __init__(self, code, reason):
        super().__init__(code, reason)
        self.code = code


@case
def an_exception_class_of_main():
    def fail(thing, index):
        raise Mine(7, "because")

    try:
        load(Calls(fail))
    except Mine as error:
        return error.code == 7


@case
def globals_of_main_as_they_are_now():
    global setting  # noqa: PLW0603 - the point of the case
    setting = "changed after the import"
    return load(Calls(lambda thing, index: setting)) == [setting] * 2


@case
def forkserver_too():
    return load(Calls(lambda thing, index: index), multiprocessing_context="forkserver") == [0, 1]


# ---- objects of multiprocessing


@case
def a_lock():
    def locked(lock, index):
        with lock:
            return index

    return load(Calls(locked, CONTEXT.Lock(), 8), num_workers=2) == list(range(8))


@case
def a_value_that_all_write():
    def count(value, index):
        with value.get_lock():
            value.value += 1
        return index

    value = CONTEXT.Value("i", 0)
    load(Calls(count, value, 20), num_workers=2)
    return value.value == 20


@case
def an_array():
    array = CONTEXT.Array("d", 4)

    def put(array, index):
        array[index] = index + 0.5
        return index

    load(Calls(put, array, 4))
    return list(array) == [0.5, 1.5, 2.5, 3.5]


@case
def a_queue():
    inbox = CONTEXT.Queue()
    load(Calls(lambda queue, index: queue.put(index), inbox, 3))
    got = sorted(inbox.get(timeout=10) for _ in range(3))
    inbox.close()
    inbox.join_thread()
    return got == [0, 1, 2]


@case
def a_simple_queue():
    inbox = CONTEXT.SimpleQueue()
    load(Calls(lambda queue, index: queue.put(index), inbox, 3))
    got = sorted(inbox.get() for _ in range(3))
    inbox.close()
    return got == [0, 1, 2]


@case
def an_event_and_a_semaphore():
    event, semaphore = CONTEXT.Event(), CONTEXT.Semaphore(2)

    def use(things, index):
        with things[1]:
            things[0].set()
        return things[0].is_set()

    return load(Calls(use, (event, semaphore))) == [True] * 2 and event.is_set()


@case
def a_pipe():
    here, there = CONTEXT.Pipe()
    load(Calls(lambda end, index: end.send(index), there))
    got = [here.recv(), here.recv()]
    here.close(), there.close()
    return got == [0, 1]


@case
def a_dictionary_of_a_manager():
    with multiprocessing.get_context(
        "fork"
    ).Manager() as manager:  # its own start would run this script again
        shared = manager.dict()
        load(Calls(lambda shared, index: shared.update({index: index * 2}), shared, 3))
        return dict(shared) == {0: 0, 1: 2, 2: 4}


@case
def a_socket():
    first, second = socket.socketpair()
    with first, second:
        load(Calls(lambda sock, index: sock.send(b"%d" % index), first))
        return second.recv(10) == b"01"


@case
def an_iterator_again_after_all_that():
    value = CONTEXT.Value("i", 0)
    dataset = Calls(lambda value, index: value.value, value)
    first = load(dataset)
    value.value = 5
    return (first, load(dataset)) == ([0, 0], [5, 5])


# ---- tensors and arrays


@case
def a_shared_tensor_that_all_write():
    shared = torch.zeros(8).share_memory_()

    def put(shared, index):
        shared[index] = index + 1
        return index

    load(Calls(put, shared, 8), num_workers=2)
    return shared.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


@case
def many_shared_tensors():
    shared = [torch.full((2,), float(n)).share_memory_() for n in range(300)]
    got = load(Calls(lambda shared, index: torch.stack(shared), shared, 1))
    return got[0][:, 0].tolist() == list(range(300))


@case
def a_model():
    model = torch.nn.Linear(4, 4)

    def run(model, index):
        with torch.no_grad():
            return model(torch.ones(4))

    return torch.equal(load(Calls(run, model))[0], run(model, 0))


@case
def a_random_generator_of_torch():
    generator = torch.Generator().manual_seed(3)
    expected = torch.rand(2, generator=torch.Generator().manual_seed(3))
    return torch.equal(load(Calls(lambda g, index: torch.rand(2, generator=g), generator, 1))[0], expected)


@case
def a_random_generator_of_numpy():
    expected = np.random.default_rng(3).random()
    return load(Calls(lambda g, index: g.random(), np.random.default_rng(3), 1)) == [expected]


@case
def a_parameter_made_while_pickling():
    class Makes(Numbers):
        def __getstate__(self):
            return {"length": 2, "weight": torch.nn.Parameter(torch.full((10,), 7.0))}

        def __getitem__(self, index):
            return self.weight.detach()

    return [batch.tolist() for batch in load(Makes(2))] == [[7.0] * 10] * 2


@case
def a_shared_tensor_made_while_pickling():
    class Makes(Numbers):
        def __getstate__(self):
            return {"length": 2, "weight": torch.full((10,), 7.0).share_memory_()}

        def __getitem__(self, index):
            return self.weight

    return [batch.tolist() for batch in load(Makes(2))] == [[7.0] * 10] * 2


@case
def tensors_of_every_kind():
    kinds = {
        "plain": torch.arange(6.0),
        "transposed": torch.arange(6.0).view(2, 3).t(),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(3),
        "bool": torch.tensor([True, False]),
        "bfloat16": torch.ones(3, dtype=torch.bfloat16),
        "complex": torch.ones(3, dtype=torch.complex64),
        "slice": torch.arange(1000)[10:20],
        "sparse": torch.eye(3).to_sparse(),
        "grad": torch.ones(3, requires_grad=True),
        "expanded": torch.ones(1).expand(5),
    }
    got = load(Calls(lambda kinds, index: {name: t.detach() for name, t in kinds.items()}, kinds, 1))[0]
    return [
        name
        for name, t in kinds.items()
        if not torch.equal(
            t.detach().to_dense() if t.layout != torch.strided else t.detach(),
            got[name].to_dense() if got[name].layout != torch.strided else got[name],
        )
    ] == []


@case
def tensors_that_torch_has_not_yet_conjugated_or_negated():
    value = torch.tensor([1 + 2j, 3 - 1j])
    got = load(
        Calls(lambda tensors, index: [t.clone() for t in tensors], (value.conj(), value.conj().imag), 1)
    )[0]
    return torch.equal(got[0], value.conj()) and torch.equal(got[1], value.conj().imag)


@case
def what_a_worker_writes_to_a_plain_array_stays_there():
    array = np.zeros(1000)

    def put(array, index):
        array[index] = 1
        return float(array.sum())

    return load(Calls(put, array, 2)) == [1.0, 2.0] and float(array.sum()) == 0


@case
def what_a_worker_writes_to_a_large_array_stays_there():
    array = np.zeros(70 << 20, np.uint8)

    def put(array, index):
        array[index * 4096 * 50] = 1
        return int(array[:: 4096 * 50].sum())

    return load(Calls(put, array, 2)) == [1, 2] and int(array[:: 4096 * 50].sum()) == 0


@case
def what_the_consumer_writes_to_a_large_array_stays_here():
    array = np.zeros(70 << 20, np.uint8)
    loader = DataLoader(
        Calls(lambda array, index: int(array[5 << 20]), array, 8),
        batch_size=None,
        num_workers=1,
        multiprocessing_context=CONTEXT,
        prefetch_factor=1,
    )
    iterator = iter(loader)
    got = [next(iterator)]
    array[5 << 20] = 9
    got += list(iterator)
    return got == [0] * 8 and int(array[5 << 20]) == 9 and list(loader) == [9] * 8


@case
def a_large_array_in_shared_memory_is_still_shared_afterwards():
    memory = shared_memory.SharedMemory(create=True, size=70 << 20)
    try:
        array = np.ndarray((70 << 20,), np.uint8, buffer=memory.buf)
        load(Calls(lambda array, index: index, array))
        array[5 << 20] = 9
        other = shared_memory.SharedMemory(name=memory.name)
        seen = other.buf[5 << 20]
        other.close()
        return seen == 9
    finally:
        memory.unlink()
        keep.append((memory, array))  # its pages may be others by now: never unmap them


@case
def a_large_file_that_is_mapped_is_still_written_afterwards():
    path = tempfile.mktemp()
    mapped = np.memmap(path, np.uint8, "w+", shape=(70 << 20,))
    results = []
    try:
        for thing in (mapped, np.asarray(mapped), np.asarray(mapped)[4096:], torch.from_numpy(mapped)):
            load(Calls(lambda array, index: index, thing))
            mapped[5 << 20] += 1
            mapped.flush()
            results.append(int(np.fromfile(path, np.uint8, 1, offset=5 << 20)[0]))
    finally:
        pathlib.Path(path).unlink()
    keep.append(mapped)
    return results == [1, 2, 3, 4]


@case
def a_mapped_file_is_read_where_it_lies():
    path = tempfile.mktemp()
    np.arange(1000, dtype=np.int64).tofile(path)
    try:
        mapped = np.memmap(path, np.int64, "r")
        return load(
            Calls(lambda array, index: [int(array[0][index]), int(array[1][index])], (mapped, mapped[10:]))
        ) == [[0, 10], [1, 11]]
    finally:
        pathlib.Path(path).unlink()


@case
def arrays_that_overlap():
    base = np.arange(1000)
    got = load(
        Calls(lambda arrays, index: [int(array[index]) for array in arrays], (base, base[5:], base[::-1]))
    )
    return got == [[0, 5, 999], [1, 6, 998]]


# ---- other things


@case
def a_loader_that_has_run():
    inner = DataLoader(Pictures(4), batch_size=2, num_workers=1)
    list(inner)

    def run(loader, index):
        return torch.cat(list(loader))

    return all(is_right(batch, range(4)) for batch in load(Calls(run, inner)))


@case
def a_lock_of_threads():
    def locked(things, index):
        with things[0], things[1], things[2]:
            return index

    return load(
        Calls(locked, (threading.Lock(), threading.RLock(), threading.Condition()), 4), num_workers=2
    ) == [0, 1, 2, 3]


@case
def a_lock_of_threads_that_is_held():
    lock = threading.Lock()

    def locked(lock, index):
        with lock:
            return index

    with lock:
        return load(Calls(locked, lock)) == [0, 1]


@case
def a_logger_a_module_a_path_and_a_pattern():
    things = (logging.getLogger("mine"), re, pathlib.Path("x"), re.compile("a+"), print, int)
    return (
        load(Calls(lambda things, index: str(things[2]) + things[3].pattern + things[1].escape("."), things))
        == ["xa+\\."] * 2
    )


@case
def the_parent_process_can_be_asked_for():
    def ask(thing, index):
        return multiprocessing.parent_process().is_alive(), multiprocessing.current_process().name

    return load(Calls(ask))[0][0]


@case
def errors_come_with_the_index():
    def fail(thing, index):
        raise ValueError("bad sample")

    try:
        load(Calls(fail))
    except ValueError as error:
        return "sample index: 0" in str(error)


@case
def a_nursery_that_was_killed_is_replaced():
    from penstock._engine.backends import birth

    birth._Nursery.process.kill()
    return load(Numbers(2)) == [0, 1]


keep = []
say("main runs")
for function in CASES:
    try:
        answer = function()
    except BaseException as error:
        answer = "".join(traceback.format_exception_only(error))
    gc.collect()
    os.write(1, f"{function.__name__}\t{answer!r}\n".encode())
say("end")
os._exit(0)
