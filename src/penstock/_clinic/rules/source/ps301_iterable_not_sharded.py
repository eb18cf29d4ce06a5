"""PS301 iterable-not-sharded

## What it finds
An `IterableDataset` whose `__iter__` goes through all data, given to a loader with several workers.

## Why it matters
Each worker iterates over its own copy of the dataset. Unless `__iter__` yields only this worker's share,
every sample comes once from each worker: an epoch is `num_workers` times too long, with every sample
repeated, and torch says nothing.

## How we know
`__iter__` goes over files, lists or ranges of the dataset, and nothing in the class speaks of workers or
shards; the loader has more than one worker.

## What to do
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from itertools.islice(self.stream(), first, None, step)

## When we stay silent
When the loader has one worker or none, or a `worker_init_fn`; when the class speaks of workers, ranks, shards
or splits; when what it goes over may divide itself (another dataset); and when samples are drawn at random.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.reading.classes import ClassRead, Place, is_self
from penstock._clinic.reading.patterns import FILES, made_by, names_in, quoted
from penstock._clinic.reading.program import LoaderMade, program, site

SEVERAL = 2
DIVIDING = ("worker", "shard", "rank", "split", "world_size", "partition", "num_replicas", "islice", "node")
# Names of attributes that hold plain data, when their own assignment does not say what they are.
DATA = ("file", "path", "line", "url", "record", "text", "row", "sample", "sentence", "document", "name")
PLAIN = frozenset({"list", "range", "sorted", "tuple", "glob.glob", "os.listdir", "enumerate", "len", "int"})


class IterableNotSharded:
    """Every worker yields all samples."""

    code: ClassVar[str] = "PS301"
    cause: ClassVar[str] = "iterable-not-sharded"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each dataset."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.iterable_datasets:
            if dataset.mentions(*DIVIDING):
                continue
            loader = next((each for each in read.loaders if _multiplies(each, dataset)), None)
            walk = _walk(dataset)
            if loader is not None and walk is not None:
                yield self._finding(dataset, loader, walk)

    def _finding(self, dataset: ClassRead, loader: LoaderMade, walk: tuple[ast.AST, Place]) -> Finding:
        node, place = walk
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            message=(
                f"`{dataset.name}.__iter__` goes through all data in every one of {loader.workers} workers: "
                f"each sample comes {loader.workers} times"
            ),
            prescription=Prescription(
                change="yield only this worker's share, as get_worker_info() tells",
                expect="each sample comes once",
                fix=Fix("shard", site(place.module, place.function)),
            ),
            evidence=(
                Evidence("goes over all", quoted(place.module, node), "source"),
                Evidence("num_workers", str(loader.workers), "source"),
            ),
            where=site(place.module, place.function),
            confidence="suspected",
        )


def _multiplies(loader: LoaderMade, dataset: ClassRead) -> bool:
    is_given = dataset in loader.datasets[:1]  # the outermost: an inner one may be divided outside
    return is_given and (loader.workers or 0) >= SEVERAL and loader.lacks("worker_init_fn")


def _walk(dataset: ClassRead) -> tuple[ast.AST, Place] | None:
    """Where `__iter__` goes over data that is the same in every worker."""
    for place in dataset.reach("__iter__"):
        for node in place.nodes():
            over = _gone_over(node)
            if over is not None and _is_plain(over, dataset, place):
                return node, place
    return None


def _gone_over(node: ast.AST) -> ast.expr | None:
    """What a loop, a `yield from` or a `return iter(…)` goes over, if what it brings is used."""
    if isinstance(node, ast.For):
        targets = {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        used = {name for each in node.body for name in names_in(each)}
        return node.iter if targets & used else None
    if isinstance(node, ast.YieldFrom):
        return node.value
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
        return node.value.args[0] if _named(node.value) in {"iter", "map"} and node.value.args else None
    return None


def _named(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_plain(node: ast.expr, dataset: ClassRead, place: Place) -> bool:
    """Whether an expression is a range, a file, a list or an attribute that is one."""
    if isinstance(node, (ast.List, ast.ListComp)):
        return True
    if isinstance(node, ast.Name):
        return any(
            isinstance(bound, ast.expr) and _is_plain(bound, dataset, place)
            for bound in place.module.bound(node.id, node)
        )
    if isinstance(node, ast.Attribute) and is_self(node.value):
        return _is_plain_attribute(node.attr, dataset)
    made = made_by(node, place.module)
    if made is None:
        return False
    name, call = made
    if name in {"enumerate", "zip", "iter", "map", "reversed", "sorted", "list", "tqdm", "tqdm.tqdm"}:
        return any(_is_plain(arg, dataset, place) for arg in call.args)
    return name in PLAIN or name in FILES or name in {"csv.reader", "csv.DictReader", "os.walk"}


def _is_plain_attribute(attribute: str, dataset: ClassRead) -> bool:
    values = [each.value for each in dataset.assigned(attribute)]
    if any(isinstance(value, (ast.List, ast.ListComp)) for value in values):
        return True
    made = [
        made_by(value, each.module) for value, each in zip(values, dataset.assigned(attribute), strict=True)
    ]
    if any(each is not None and each[0] in PLAIN for each in made):
        return True
    from_outside = any(isinstance(value, ast.Name) for value in values)
    return from_outside and any(word in attribute.lower() for word in DATA)
