"""PS115 handle-shared-across-fork

## What it finds
A file, archive or database that a dataset opens in `__init__` and reads in `__getitem__`.

## Why it matters
Forked workers inherit one open file between them, with one position. When two workers seek and read at the
same time, each may get the bytes of the other: wrong samples without any error, a bad checksum from a zip
archive, a crash in LMDB or HDF5.

## How we know
The source opens it before there are workers, keeps it in an attribute and reads that in `__getitem__`;
nothing opens it again in the worker.

## What to do
Keep the path, and open on first use in the process that reads:

    def __getitem__(self, index):
        if self._file is None or self._pid != os.getpid():
            self._file, self._pid = open(self._path, "rb"), os.getpid()

For plain files `os.pread(fd, size, offset)` needs no position, and may share.

## When we stay silent
When every loader of the dataset has at most one worker or sends it to fresh processes (PS101 then), when the
handle is closed or set to None in `__init__`, opened again in `__getitem__`, or perhaps in a
`worker_init_fn`, when it is read by `os.pread` alone, and when a lock between processes is held (PS409).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.reading.classes import Assignment, ClassRead, Place, is_self
from penstock._clinic.reading.patterns import (
    FILES,
    a,
    calls,
    is_none,
    is_own_call,
    is_process_lock,
    made_by,
    quoted,
)
from penstock._clinic.reading.program import LoaderMade, Program, program, site

# Reading that needs no common position: os.pread, mmap. A name or a number tells nothing of the position.
POSITIONLESS = frozenset({"os.pread", "os.preadv", "os.fstat", "mmap.mmap", "os.stat"})
READ_BY_PARTS = frozenset({"HDF5 file", "NetCDF file"})
HARM = "forked workers share its position and get each other's bytes"
OTHER_HARM = dict.fromkeys(
    ("LMDB environment", "SQLite connection", "HDF5 file", "NetCDF file", "raster file"),
    "its library does not allow a forked worker to use what another process opened",
)
HARMLESS = frozenset({"name", "closed", "mode", "filename", "close", "path"})


class HandleSharedAcrossFork:
    """Workers share a handle that was opened before them."""

    code: ClassVar[str] = "PS115"
    cause: ClassVar[str] = "handle-shared-across-fork"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each handle."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.datasets:
            loaders = read.forks(dataset)
            if loaders is None or not _is_shared(loaders):
                continue
            for owner, roots in read.held(dataset):
                fetching = owner.reach(*roots)
                for each, kind in _opened(owner, fetching):
                    use = _use(read, owner, each.attribute, fetching)
                    if use is not None:
                        yield self._finding(owner, each, kind, use)

    def _finding(
        self, dataset: ClassRead, each: Assignment, kind: str, use: tuple[ast.AST, Place]
    ) -> Finding:
        name = f"{dataset.name}.{each.attribute}"
        node, place = use
        is_part = isinstance(each.value, ast.Subscript)
        thing = f"part of {a(kind)}" if is_part else a(kind)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            message=(
                f"`{name}` is {thing} opened in `{each.method.name}` and read in `{place.function.name}`: "
                f"{OTHER_HARM.get(kind, HARM)}"
            ),
            prescription=Prescription(
                change=f"keep the path, and open `self.{each.attribute}` on first use in each process",
                expect="every worker reads through a handle of its own",
                fix=Fix("lazy-open", site(each.module, each.node), {"attribute": each.attribute}),
            ),
            evidence=(
                Evidence("opened before workers start", quoted(each.module, each.node), "source"),
                Evidence("read in the worker", quoted(place.module, node), "source"),
            ),
            where=site(each.module, each.node, f"{dataset.name}.{each.method.name}"),
            confidence="suspected",
        )


def _opened(dataset: ClassRead, fetching: list[Place]) -> Iterator[tuple[Assignment, str]]:
    """Handles that stay open after the making, and what they are."""
    for each in dataset.made():
        kind = _kind(each, dataset, fetching)
        if kind is not None and not _is_dropped(dataset, each.attribute, fetching):
            yield each, kind


def _kind(each: Assignment, dataset: ClassRead, fetching: list[Place]) -> str | None:
    """What is opened here: a handle, or a part of one that reads through it (`h5py.File(path)["images"]`)."""
    node = each.value
    if isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Constant, ast.JoinedStr)):
        kind = _opened_by(node.value, each, dataset, fetching)
        return kind if kind in READ_BY_PARTS else None
    made = made_by(node, each.module)
    return FILES.get(made[0]) if made is not None else None


def _opened_by(node: ast.expr, each: Assignment, dataset: ClassRead, fetching: list[Place]) -> str | None:
    """What a part belongs to: `h5py.File(path)`, a name or an attribute for it."""
    if isinstance(node, ast.Name):
        found = [made_by(bound, each.module) for bound in each.module.bound(node.id, node)]
    elif isinstance(node, ast.Attribute) and is_self(node.value):
        is_open = not _is_dropped(dataset, node.attr, fetching)
        found = [made_by(one.value, one.module) for one in dataset.assigned(node.attr) if is_open]
    else:
        found = [made_by(node, each.module)]
    return next((FILES[one[0]] for one in found if one is not None and one[0] in FILES), None)


def _is_dropped(dataset: ClassRead, attribute: str, fetching: list[Place]) -> bool:
    """Whether it is closed or replaced before there are workers, or opened again in them."""
    making = {each.method for each in dataset.made()}
    functions = {place.function for place in fetching}
    for each in dataset.assigned(attribute):
        is_emptied = each.method in making and is_none(each.value) and _is_last(dataset, each)
        if is_emptied or each.method in functions:
            return True
    makers = [place for place in dataset.methods.values() if place.function in making]
    return any(is_own_call(call, "close") == attribute for place in makers for call in calls(place))


def _is_last(dataset: ClassRead, each: Assignment) -> bool:
    """Whether an assignment comes after all others to the same attribute in its method."""
    same = [one for one in dataset.assigned(each.attribute) if one.method is each.method]
    return all(one.node.lineno <= each.node.lineno for one in same)


def _use(
    read: Program, dataset: ClassRead, attribute: str, fetching: list[Place]
) -> tuple[ast.AST, Place] | None:
    """Where a worker reads through it."""
    for node, place in dataset.uses(attribute, fetching):
        if not _is_positionless(node, place) and not _is_locked(read, node, place):
            return node, place
    return None


def _is_locked(read: Program, node: ast.AST, place: Place) -> bool:
    """Whether a lock between processes is held here: slow (PS409), but right."""
    blocks = (each for each in place.module.above(node) if isinstance(each, ast.With))
    held = (item.context_expr for each in blocks for item in each.items)
    values = (value for each in held for value in read.values.of(each, place.module))
    made = (made_by(value.node, value.module) for value in values)
    return any(each is not None and is_process_lock(each[0]) for each in made)


def _is_positionless(node: ast.Attribute, place: Place) -> bool:
    """Whether this use moves no position: inside os.pread(self.f.fileno(), …), or just a name."""
    parent = place.module.parents.get(node)
    if isinstance(parent, ast.Attribute) and parent.attr in HARMLESS:
        return True
    if isinstance(parent, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.If)):
        return True
    around = (each for each in place.module.above(node) if isinstance(each, ast.Call))
    return any(place.module.dotted(call.func) in POSITIONLESS for call in around)


def _is_shared(loaders: list[LoaderMade]) -> bool:
    """Whether several processes may read through it: not when worker_init_fn may open it anew."""
    if not loaders:
        return True
    return any("worker_init_fn" not in each.options and each.workers != 1 for each in loaders)
