"""Values and foreign text as words that are safe to show. Pure.

Guarantees: what `plain` returns moves no cursor, sets no colour and changes no reading direction, whatever a
dataset, a file name or an exception of the patient's put into it; and it can be encoded.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock._clinic.finding import Finding, Proof
from penstock._clinic.report import Report

# Control, format (bidirectional overrides among them), surrogate, private, and the two separators of lines.
UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
LONGEST = 2000  # characters of one foreign text; arbitrary, more than a screen of one sentence

KB = 1000.0
MINUTE = 60
UNITS = ("bytes", "kB", "MB", "GB", "TB")

# Names of figures whose unit they do not say themselves.
RATES = {"samples_per_s": "samples/s", "gain": "times as fast"}
SIZES = frozenset({"memory", "shm", "pss", "uss", "rss"})

# By the status of a proof: how its line begins.
PROOFS = {"verified": "proved", "refuted": "refuted", "not-tested": "not tested"}
LONGEST_PROOF = 300  # characters of what an experiment said
LONGEST_OUTCOME = 120  # characters of an outcome, which may be the message of an exception


def plain(text: object, *, limit: int = LONGEST) -> str:
    """One line of text in which every character that could act on a terminal is spelled out."""
    whole = str(text)
    cut = whole if len(whole) <= limit else whole[: limit - 1] + "…"
    return "".join(map(_shown, cut.strip("\n").replace("\r\n", "\n")))


def _shown(char: str) -> str:
    if char == "\n":
        return " "
    if char == "\t":
        return "    "
    if unicodedata.category(char) not in UNSAFE:
        return char
    return char.encode("unicode_escape").decode("ascii")


def short_path(file: str, *, base: Path | None = None) -> str:
    """The path as the user would write it: relative where the file lies below the working directory."""
    try:
        return plain(Path(file).relative_to(base or Path.cwd()))
    except (ValueError, OSError):
        return plain(file)


def sentence(text: str) -> str:
    """The same with a capital letter at its start."""
    safe = plain(text).strip()
    return safe[:1].upper() + safe[1:]


def lines(text: str) -> list[str]:
    """The same for text of several lines."""
    return [plain(line) for line in text.replace("\r\n", "\n").split("\n")]


def number(value: float, *, digits: int = 3) -> str:
    """As many digits as matter, and every one before the point: '1,204', '23.1', '0.042'."""
    if not math.isfinite(value):
        return "unknown"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def size(nbytes: float) -> str:
    """'64 MB', '1.5 GB'."""
    value, units = float(nbytes), list(UNITS)
    while abs(value) >= KB and len(units) > 1:
        value /= KB
        del units[0]
    return f"{number(value, digits=2)} {units[0]}"


def seconds(value: float) -> str:
    """'0.42 s', '31 s', '2 min 5 s'."""
    if value < MINUTE:
        return f"{number(value, digits=2)} s"
    minutes, rest = divmod(round(value), MINUTE)
    return f"{minutes} min {rest} s"


def figure(name: str, value: Any) -> str:
    """One measured value with its name, by the unit that the name carries."""
    label = plain(name).replace("_", " ")
    if name == "outcome":
        return plain(value, limit=LONGEST_OUTCOME)
    if name == "ill":
        return "with the fault" if value else "without the fault"
    if isinstance(value, bool):
        return label if value else f"not {label}"
    if not isinstance(value, (int, float)):
        return f"{label} {plain(value)}"
    return _quantity(name, label, value)


def _quantity(name: str, label: str, value: float) -> str:
    if name in RATES:
        return f"{number(value)} {RATES[name]}"
    if name.startswith("bytes "):
        return f"{size(value)} {label.removeprefix('bytes ')}"
    if name.endswith("bytes") or name in SIZES:
        return f"{label.removesuffix(' bytes').removesuffix(' nbytes')} {size(value)}"
    if name.endswith("_s"):
        return f"{label.removesuffix(' s')} {seconds(value)}"
    return f"{label} {number(value)}"


def figures(values: Mapping[str, Any]) -> str:
    """Measured values in one line; the outcome first, what is unknown left out."""
    known = [name for name, value in values.items() if value is not None and value != ""]
    return ", ".join(figure(name, values[name]) for name in sorted(known, key=lambda name: name != "outcome"))


def counted(count: int, word: str) -> str:
    """'1 error', '2 errors'."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def loader(key: str, report: Report) -> str:
    """A loader as its user knows it: 'train_loader (train.py:31)'."""
    place = key.removesuffix("#0")
    for line in report.loaders:
        if line.name not in {"", key} and place.endswith(f"{Path(line.file).name}:{line.line}"):
            return f"{plain(line.name)} ({plain(place)})"
    return plain(place) or "loader"


def other_way(target: str) -> str:
    """How to put our loader in place, for this kind of target."""
    name = short_path(target)
    if target.endswith(".py") or "/" in target:
        return f"penstock run {name}"
    return "from penstock import DataLoader" if ":" in target else f"penstock run -m {name}"


def tally(findings: Iterable[Finding]) -> str:
    """'1 error, 2 warnings'."""
    severities = [finding.severity for finding in findings]
    kinds = (("error", "error"), ("warning", "warning"), ("info", "remark"))
    return ", ".join(counted(severities.count(kind), word) for kind, word in kinds if kind in severities)


def verdict(report: Report) -> str:
    """The report in one sentence."""
    took = f"examined in {seconds(report.seconds)}"
    if report.verdict == "could-not-run":
        return f"could not run: {plain(report.reason.what) if report.reason else 'no reason was given'}"
    if report.verdict == "healthy":
        loaders = counted(len(report.loaders), "loader")
        remarks = f", {tally(report.findings)}" if report.findings else ""
        return f"healthy: {loaders}, nothing wrong found{remarks}; {took}"
    if not report.findings:
        return f"sick; {took}"
    first = report.findings[0]
    return f"sick: {first.cause} ({first.code}), {certainty(first)}; {tally(report.findings)}; {took}"


def certainty(finding: Finding) -> str:
    """'proved', 'observed' or 'suspected'."""
    return "proved" if finding.proof.status == "verified" else finding.confidence


def proof(given: Proof) -> str:
    """What the experiment was and what it said, in one sentence.

    `experiment` is "what was changed: what that did". A plain cure is said shorter: the figures that follow
    (`measured`) have the failure in full.
    """
    experiment = plain(given.experiment, limit=LONGEST_PROOF)
    if not experiment:
        return "no experiment could be made for it" if given.status != "verified" else "it is cured"
    change = experiment.partition(": ")[0]
    is_cure = given.after.get("outcome") == "ok" and given.before.get("outcome") != "ok"
    if given.status == "verified" and is_cure:
        return (
            f"{change}: the failure is gone"
            if _stands_alone(change)
            else f"with {change} the failure is gone"
        )
    if any(name.startswith("bytes ") for name in given.before):
        return change  # its effect is in the figures, with units
    return experiment


def _stands_alone(change: str) -> bool:
    """Whether words such as 'the same loader with …' need no 'with' before them."""
    return change.startswith(("the ", "with "))


def measured(given: Proof) -> str:
    """'before: …; after: …', as far as there are figures."""
    sides = (("before", figures(given.before)), ("after", figures(given.after)))
    return "; ".join(f"{side}: {text}" for side, text in sides if text)
