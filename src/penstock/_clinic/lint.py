"""An exam of the source alone: the rules that need nothing else, and which of their findings are wanted.

A rule that fails cannot stop the others; it is named in `notes`, because it is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock._clinic import ignore
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding
from penstock._clinic.rule import Rule
from penstock._clinic.rules.source import RULES
from penstock._clinic.settings import Options
from penstock._clinic.source import Source

# A file without any of these words has no loader and no dataset: it is not parsed.
TELLING = ("DataLoader", "Dataset", "__getitem__", "set_start_method", "IterDataPipe", "dataloader")


@dataclass(frozen=True, slots=True)
class Linted:
    """What reading has found: worst places in the order of files and lines."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()


def lint(source: Source, options: Options, *, rules: Iterable[Rule] = RULES) -> Linted:
    """Ask every rule of the source, and keep what the options and the comments leave."""
    facts = Facts(source=source)
    found: list[Finding] = []
    notes: list[str] = []
    for rule in rules:
        if not ignore.is_chosen(rule.code, rule.cause, select=options.select, ignore=options.ignore):
            continue
        try:
            found.extend(rule.check(facts))
        except Exception as error:  # noqa: BLE001 - the user's syntax may be stranger than a rule expects
            notes.append(f"rule {rule.code} failed: {type(error).__name__}: {error}")
    return Linted(tuple(sorted(set_of(_wanted(found, source, options)), key=_place)), tuple(notes))


def is_telling(text: str) -> bool:
    """Whether a source text can concern any rule."""
    return any(word in text for word in TELLING)


def set_of(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Each finding once: two loaders may lead to the same line."""
    seen: set[tuple[object, ...]] = set()
    for finding in findings:
        key = (*_place(finding), finding.message)
        if key not in seen:
            seen.add(key)
            yield finding


def _wanted(findings: Iterable[Finding], source: Source, options: Options) -> Iterator[Finding]:
    comments = {file.path: ignore.comments(file.text) for file in source.files}
    for finding in findings:
        where = finding.where
        patterns: set[str] = set()
        if where is not None:
            patterns |= comments.get(where.file, {}).get(where.line, frozenset())
            patterns |= set(ignore.ignored_in(where.file, options.per_file_ignores))
        if ignore.is_chosen(finding.code, finding.cause, ignore=patterns):
            yield finding


def _place(finding: Finding) -> tuple[str, int, int, str]:
    where = finding.where
    return (where.file, where.line, where.column, finding.code) if where else ("", 0, 0, finding.code)
