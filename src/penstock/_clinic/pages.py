"""The page of every code and cause: one text, for the terminal and for the documentation. Needs no torch.

The text of a cause is the docstring of its rule; where a rule of the source speaks of the same cause, a
section says what `penstock lint` sees. Errors of the loader (`penstock.errors.CODES`) and reasons why a
program could not be examined (`_clinic/reasons.py`) have a title and a paragraph. Docstrings are read from
the files: no rule is imported.
"""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock._clinic.causes import CAUSES, CODES
from penstock.errors import CODES as ERRORS

FAMILIES = {
    "PS0": "Options refused at once",
    "PS1": "Starting workers",
    "PS2": "Limits of the machine, and memory",
    "PS3": "Silently wrong data",
    "PS4": "Speed",
    "PS5": "Samples, batches and pickling in our loader",
    "PS6": "Workers of our loader",
    "PS7": "Shared memory of our loader",
    "PS8": "Failures while it runs",
    "PS9": "Why a program could not be examined",
}
RULES = Path(__file__).parent / "rules"
CODE_INDENT = "    "
WIDTH = 110  # columns of a page in the documentation


@dataclass(frozen=True, slots=True)
class Page:
    """One code: what it means, how it is found, what to do."""

    code: str
    title: str
    sections: tuple[tuple[str, str], ...]  # heading ("" for none) and Markdown
    is_cause: bool = False


def page(code: str) -> str:
    """The page of a code as Markdown; "" where there is none."""
    found = find(code)
    return markdown(found) if found is not None else ""


def find(name: str) -> Page | None:
    """The page of a code or of the slug of a cause, in any case of letters."""
    word = name.strip()
    code = CODES.get(word.lower(), word.upper())
    if code in CAUSES:
        return _cause(code)
    plain = ERRORS.get(code) or _reasons().get(code)
    if plain is None:
        return None
    title, text = plain
    return Page(code, title, (("", text),))


def nearest(name: str) -> str | None:
    """The code or cause that was probably meant."""
    word = name.strip()
    known = [*CODES, *_all()]
    close = difflib.get_close_matches(word.lower(), known, n=1) or difflib.get_close_matches(
        word.upper(), known, n=1, cutoff=0.7
    )
    parts = [slug for slug in CODES if word and word.lower() in slug]
    return next(iter([*parts, *close]), None)


def families() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Every code with its cause or title, family by family."""
    everything = _all()
    for prefix, title in FAMILIES.items():
        codes = sorted(code for code in everything if code.startswith(prefix))
        if codes:
            yield f"{prefix}xx  {title}", [(code, everything[code]) for code in codes]


def _all() -> dict[str, str]:
    titles = {code: title for code, (title, _) in {**ERRORS, **_reasons()}.items()}
    return {**titles, **CAUSES}


def _reasons() -> dict[str, tuple[str, str]]:
    from penstock._clinic.reasons import PAGES

    return PAGES


# ---- from docstrings --------------------------------------------------------------------------------


def _cause(code: str) -> Page:
    sections: list[tuple[str, str]] = []
    for path in _rule_files(code, in_source=False):
        sections += _sections(path)
    seen = [section for path in _rule_files(code, in_source=True) for section in _sections(path)]
    if not sections:
        sections = seen
    elif seen:
        has_example = any(f"\n{CODE_INDENT}" in f"\n{body}" for _, body in sections)
        sections.append(("What penstock lint sees", _from_source(dict(seen), example=not has_example)))
    if code in ERRORS:
        sections.append(("As a warning of the loader", ERRORS[code][1]))
    return Page(code, CAUSES[code], tuple(sections), is_cause=True)


def _rule_files(code: str, *, in_source: bool) -> list[Path]:
    files = sorted(RULES.glob(f"*/{code.lower()}_*.py"))
    return [path for path in files if (path.parent.name == "source") is in_source]


def _sections(path: Path) -> list[tuple[str, str]]:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    found: list[tuple[str, str]] = []
    for part in f"\n{text}".split("\n## ")[1:]:
        heading, _, body = part.partition("\n")
        found.append((heading.strip(), body.strip("\n")))
    return found


def _from_source(seen: dict[str, str], *, example: bool) -> str:
    """What a rule of the source says in other words than the rule that has seen the program run."""
    remedy, silent = seen.get("What to do", ""), seen.get("When we stay silent", "")
    parts = [
        seen.get("What it finds", ""),
        seen.get("How we know", ""),
        remedy if example and f"\n{CODE_INDENT}" in f"\n{remedy}" else "",
        silent and textwrap.fill(f"It stays silent {_lower(silent)}", WIDTH, break_on_hyphens=False),
    ]
    return "\n\n".join(part for part in parts if part)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


# ---- as text ----------------------------------------------------------------------------------------


def markdown(found: Page) -> str:
    """The page for the documentation, and for whatever shows Markdown."""
    parts = [f"# {found.code} {found.title}"]
    for heading, body in found.sections:
        parts += [f"## {heading}"] if heading else []
        parts.append(_fenced(body))
    return "\n\n".join(parts) + "\n"


def terminal(found: Page, width: int) -> Iterator[tuple[str, str]]:
    """The page line by line, with the kind of each: "title", "heading", "text" or "code"."""
    yield "title", f"{found.code}  {found.title}"
    for heading, body in found.sections:
        yield "text", ""
        if heading:
            yield "heading", heading
        yield from _wrapped(body, width)


def _wrapped(body: str, width: int) -> Iterator[tuple[str, str]]:
    for place, (is_code, lines) in enumerate(_blocks(body)):
        if place:
            yield "text", ""
        if is_code:
            yield from (("code", line) for line in lines)
            continue
        for item in _items(lines):
            hanging = "  " if item.startswith("- ") else ""
            for line in textwrap.wrap(item, width, subsequent_indent=hanging, break_on_hyphens=False):
                yield "text", line


def _blocks(body: str) -> Iterator[tuple[bool, list[str]]]:
    """Paragraphs and pieces of code, in order; empty lines inside code belong to it."""
    block: list[str] = []
    is_code = False
    for line in body.split("\n"):
        starts_code = line.startswith(CODE_INDENT)
        if not line.strip():
            block.append("")
            continue
        if block and (starts_code != is_code or not (is_code or block[-1])):
            yield is_code, _stripped(block)
            block = []
        is_code = starts_code
        block.append(line)
    if any(block):
        yield is_code, _stripped(block)


def _stripped(block: list[str]) -> list[str]:
    while block and not block[-1]:
        block.pop()
    return block


def _items(lines: list[str]) -> Iterator[str]:
    """The items of a list, or one paragraph."""
    item: list[str] = []
    for line in lines:
        if line.startswith("- ") and item:
            yield " ".join(item)
            item = []
        item.append(line.strip())
    if item:
        yield " ".join(item)


def _fenced(body: str) -> str:
    """The same with indented code in fences, as the documentation writes it."""
    parts = []
    for is_code, lines in _blocks(body):
        text = textwrap.dedent("\n".join(lines)) if is_code else "\n".join(lines)
        parts.append(f"```python\n{text}\n```" if is_code else text)
    return "\n\n".join(parts)
