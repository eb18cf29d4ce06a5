"""PS305 wrong-length

## What it finds
A dataset whose `__len__` does not fit what it holds.

## Why it matters
Too small, and the samples past it are never seen, without a word. Too large, and an epoch ends with
IndexError at an index that only some shuffles reach early. For an iterable dataset the loader's own length,
progress bars and schedules are wrong.

## How we know
Too large: an index below `len` raises IndexError, and everything that the dataset holds is shorter; or the
dataset itself raises `IndexError(index)` there, and gives every sample before; or the line that raises reads
`self.x[index]`, and `x` is shorter than the dataset says it is. Too small: the dataset gives
further samples from index `len` on and then ends, and the number looks like a slip: one short, the number
of batches, a division, or a number for each of what it holds. Iterable: a whole pass without workers brings
another number of samples than `len` says. The experiment takes the number that was found in its place.

## What to do
Return the length of what `__getitem__` reads: `return len(self.samples)`.

## When we stay silent
When a dataset makes a sample for any index, as synthetic and cyclic ones do; when it is a part of a larger
one; when an iterable dataset's length is an estimate that is nearly right.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock._clinic.contents import samples
from penstock._clinic.facts import Facts
from penstock._clinic.failures import bare
from penstock._clinic.finding import Confidence, Evidence, Experiment, Finding, Fix, Prescription, Severity
from penstock._clinic.naming import loader_named, sample_named
from penstock._lab.plan import Change
from penstock._lab.record import DatasetSeen, Failure, LoaderSeen, Trial

_OUT = re.compile(r"out of (?:bounds|range)|positional indexer|is not in (?:the )?index|KeyError")
_SIZE = re.compile(r"with size (\d+)|length (\d+)")

# Of the samples there are, those that a number in the source must count to be a slip: far fewer are a choice.
MOST = 0.5
# How far the length of an iterable dataset may be from the truth before it is more than an estimate.
FAR = 0.1


@dataclass(frozen=True, slots=True)
class _Mistake:
    """A length, and what it should be."""

    said: int
    found: int
    sentence: str
    evidence: tuple[Evidence, ...]
    severity: Severity = "error"
    confidence: Confidence = "observed"
    stopped_at_s: float | None = None
    is_testable: bool = True
    part: str = ""  # of the dataset, of which this is true


class WrongLength:
    """`__len__` does not fit the data."""

    code: ClassVar[str] = "PS305"
    cause: ClassVar[str] = "wrong-length"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each dataset whose length is wrong."""
        facts = facts.one_rank
        for loader in facts.loaders:
            if loader.dataset.is_iterable:
                mistake = _iterable(facts, loader)
            else:
                mistake = (
                    _too_large(facts, loader) or _part_too_large(facts, loader) or _too_small(facts, loader)
                )
            if mistake is not None:
                yield self._finding(loader, mistake)

    def _finding(self, loader: LoaderSeen, mistake: _Mistake) -> Finding:
        name = mistake.part or loader.dataset.type or "the dataset"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity=mistake.severity,
            message=f"`len({name})` of {loader_named(loader)} is {mistake.said:,}, but {mistake.sentence}",
            prescription=Prescription(
                change=f"let `{name}.__len__` return the length of what it reads: {mistake.found:,}",
                expect="an epoch brings each sample once, and none that is not there",
                fix=Fix("true-length", loader.dataset.site, {"old": mistake.said, "new": mistake.found}),
            ),
            evidence=mistake.evidence,
            where=loader.dataset.site or loader.site,
            loader=loader.key,
            confidence=mistake.confidence,
            experiments=(
                Experiment(
                    title=f"the same loader with a length of {mistake.found:,}",
                    change=Change(mends=("true-length",)),
                ),
            )
            if mistake.is_testable
            else (),
            stopped_at_s=mistake.stopped_at_s,
        )


# ---- too large ----------------------------------------------------------------------------------


def _too_large(facts: Facts, loader: LoaderSeen) -> _Mistake | None:
    said = loader.dataset.length
    if said is None:
        return None
    for trial in facts.trials:
        for failure in trial.failures:
            found = _end(facts, trial, loader, failure)
            if found is not None:
                return _Mistake(
                    said=said,
                    found=found,
                    sentence=f"it ends at {found:,}: {sample_named(failure.index)} is not there",
                    evidence=(
                        Evidence("what was said", f"{failure.type}: {failure.text}"[:160], "observed run"),
                        Evidence("length of what the dataset holds", f"{found:,}", "samples"),
                    ),
                    stopped_at_s=failure.at_s,
                )
    return None


def _part_too_large(facts: Facts, loader: LoaderSeen) -> _Mistake | None:
    """The same of a dataset that is a part of the loader's, or whose data is not to be seen from outside."""
    failures = (failure for trial in facts.trials for failure in trial.failures)
    own = (each for each in failures if each.loader == loader.key and each.phase == "sample")
    failure = next((each for each in own if each.beyond is not None), None)
    if failure is None or failure.beyond is None:
        return None
    beyond = failure.beyond
    return _Mistake(
        said=beyond.length,
        found=beyond.size,
        sentence=f"`self.{beyond.held}`, which it reads, ends at {beyond.size:,}",
        evidence=(
            Evidence("what was said", f"{failure.type}: {failure.text}"[:160], "observed run"),
            Evidence(f"length of `{beyond.type}.{beyond.held}`", f"{beyond.size:,}", "observed run"),
        ),
        stopped_at_s=failure.at_s,
        is_testable=False,
        part=beyond.type,
    )


def _end(facts: Facts, trial: Trial, loader: LoaderSeen, failure: Failure) -> int | None:
    """Where the data ends, if this failure comes from reading past that; None where it has another reason."""
    index, said = failure.index, loader.dataset.length or 0
    if failure.loader != loader.key or failure.phase != "sample" or not isinstance(index, int):
        return None
    if bare(failure.type) not in {"IndexError", "KeyError"} or not 0 <= index < said:
        return None
    furthest = max((each for each in _read(facts, loader)), default=-1)
    if _is_refusal(failure):
        return index if 0 <= furthest < index else None
    if not _OUT.search(f"{bare(failure.type)}: {failure.text}"):
        return None
    ends = [size for size in _sizes(trial, loader, failure) if 0 < size <= index]
    return max((size for size in ends if size > furthest), default=None)


def _is_refusal(failure: Failure) -> bool:
    """Whether the dataset itself says that the index lies past its end: `raise IndexError(index)`."""
    return bare(failure.type) == "IndexError" and failure.text.strip() in {"", str(failure.index)}


def _sizes(trial: Trial, loader: LoaderSeen, failure: Failure) -> set[int]:
    """Lengths that may be the true one: of what hangs on the dataset, and what the exception names."""
    seen = trial.loader(loader.key) or loader
    told = [int(number) for pair in _SIZE.findall(failure.text) for number in pair if number]
    return {*seen.dataset.sizes.values(), *loader.dataset.sizes.values(), *told}


def _read(facts: Facts, loader: LoaderSeen) -> set[int]:
    """Indices that were read without failure, in any trial."""
    return {
        seen.index
        for trial in facts.trials
        for seen in trial.samples
        if seen.loader == loader.key and isinstance(seen.index, int)
    }


# ---- too small ----------------------------------------------------------------------------------


def _too_small(facts: Facts, loader: LoaderSeen) -> _Mistake | None:
    """Samples past the end that are new, of a dataset that does end."""
    seen = _probed(facts, loader)
    if seen is None or not seen.past or not 0 <= (seen.length or 0) < (seen.reach or 0):
        return None
    assert seen.reach is not None
    assert seen.length is not None
    if not seen.part and any(each.samples >= seen.reach for each in facts.passes(loader.key)):
        return None  # all of it was loaded
    known = {each.digest for trial in facts.trials for key in _keys(facts) for each in samples(trial, key)}
    if any(digest in known for digest in seen.past):
        return None  # cyclic, or the part of a larger one that another loader has
    slip = _slip(seen, loader) or _written(facts, loader, seen)
    left = seen.reach - seen.length
    return _Mistake(
        said=seen.length,
        found=seen.reach,
        sentence=f"it holds {seen.reach:,} samples: {left:,} are never loaded{slip}",
        evidence=(
            Evidence("first index that raises", f"{seen.reach:,}", "ladder"),
            Evidence("new contents from index len on", f"{len(seen.past):,} looked at", "samples"),
        ),
        severity="error" if slip else "info",
        confidence="observed" if slip else "suspected",
        is_testable=not seen.part,  # what is around it has asked for its length long ago
        part=seen.part,
    )


def _keys(facts: Facts) -> tuple[str, ...]:
    return tuple(loader.key for loader in facts.loaders)


def _probed(facts: Facts, loader: LoaderSeen) -> DatasetSeen | None:
    """The dataset as the pass without workers found it."""
    for trial in facts.trials:
        seen = trial.loader(loader.key)
        if seen is not None and seen.dataset.reach is not None:
            found = seen.dataset
            return dataclasses.replace(found, length=found.part_length) if found.part else found
    return None


def _slip(seen: DatasetSeen, loader: LoaderSeen) -> str:
    """What the number looks like, if it looks like a mistake and not like a choice."""
    assert seen.reach is not None
    assert seen.length is not None
    size = loader.settings.get("batch_size") or 0
    if size > 1 and seen.length in {seen.reach // size, -(-seen.reach // size)}:
        return f"; it looks like the number of batches of {size}"
    if seen.reach == seen.length + 1 and seen.reach in seen.sizes.values():
        return "; it is one short"
    return ""


def _written(facts: Facts, loader: LoaderSeen, seen: DatasetSeen) -> str:
    """Whether `__len__` returns a number that is written in the source, or a part of what is held."""
    assert seen.reach is not None
    assert seen.length is not None
    is_most = seen.length >= MOST * seen.reach
    # Samples are the rows of something that it holds: who divides there has counted something else.
    is_held = seen.reach in seen.sizes.values()
    name = (seen.part or loader.dataset.type).rpartition(".")[2]
    family = _family(facts, name)
    returned = _returned(family, "__len__")
    if returned is None or not (is_most or is_held):
        return ""
    is_rounded = seen.reach == seen.length + 1  # a rest that is no whole one may be left out
    divided = "" if is_rounded else _divides(returned, family)
    return divided or ((_constant(returned, family) or _multiplies(returned, family)) if is_most else "")


Family = tuple[ast.ClassDef, ...]


def _family(facts: Facts, name: str) -> Family:
    """The class of that name in the source, and those from which it inherits, nearest first."""
    files = facts.source.files if facts.source is not None else ()
    nodes = [node for file in files for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef)]
    known = {node.name: node for node in reversed(nodes)}
    found: dict[str, ast.ClassDef] = {}
    ahead = [name]
    while ahead:
        node = known.get(ahead.pop(0))
        if node is not None and node.name not in found:
            found[node.name] = node
            ahead += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return tuple(found.values())


def _returned(family: Family, name: str) -> ast.expr | None:
    """What the method or property of that name returns, if it does so in one place."""
    methods = (node for kind in family for node in kind.body if isinstance(node, ast.FunctionDef))
    method = next((node for node in methods if node.name == name), None)
    returns = [node.value for node in ast.walk(method) if isinstance(node, ast.Return)] if method else []
    return returns[0] if len(returns) == 1 else None


def _divides(value: ast.expr, family: Family) -> str:
    for each in (value, *_parts(value, family)):
        if any(isinstance(node, ast.FloorDiv) for node in ast.walk(each)):
            return f"; `__len__` divides: {ast.unparse(each)}"
    return ""


def _multiplies(value: ast.expr, family: Family) -> str:
    """Whether it takes for granted that each of the things that it holds has as many samples."""
    for each in (value, *_parts(value, family)):
        products = (
            node for node in ast.walk(each) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        )
        if any(_is_len(product.left) or _is_len(product.right) for product in products):
            return f"; `__len__` multiplies: {ast.unparse(each)}"
    return ""


def _is_len(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "len"


def _parts(value: ast.expr, family: Family) -> Iterator[ast.expr]:
    """What properties and methods of its own return that an expression is made of."""
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            part = _returned(family, node.attr)
            if part is not None:
                yield part


def _constant(value: ast.expr, family: Family) -> str:
    if isinstance(value, ast.Attribute):  # of the class: `NUM = 220`
        value = _class_values(family).get(value.attr, value)
    if isinstance(value, ast.Constant) and isinstance(value.value, int):
        return f"; {value.value} is written in the source"
    return ""


def _class_values(family: Family) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for kind in reversed(family)
        for node in kind.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


# ---- iterable -----------------------------------------------------------------------------------


def _iterable(facts: Facts, loader: LoaderSeen) -> _Mistake | None:
    """A whole pass without workers that brings another number of samples than it says."""
    said = loader.dataset.length
    zero = facts.at(loader.key, 0) or _own_at_zero(facts, loader)
    whole = next((each for each in zero.of(loader.key) if each.end == "exhausted"), None) if zero else None
    if said is None or whole is None:
        return None
    # A last batch that was dropped may have had so many.
    dropped = (loader.settings.get("batch_size") or 1) - 1 if loader.settings.get("drop_last") else 0
    if -FAR * said <= whole.samples - said + dropped and whole.samples - said <= FAR * said:
        return None
    return _Mistake(
        said=said,
        found=whole.samples,
        sentence=f"a whole pass without workers brings {whole.samples:,} samples",
        evidence=(
            Evidence("samples in a pass without workers", f"{whole.samples:,}", "ladder"),
            Evidence("len(dataset)", f"{said:,}", "settings"),
        ),
        severity="warning",
        is_testable=False,
    )


def _own_at_zero(facts: Facts, loader: LoaderSeen) -> Trial | None:
    return facts.observed if not loader.settings.get("num_workers") else None
