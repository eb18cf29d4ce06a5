"""Write the generated pages of the documentation, and check all pages.

    python scripts/docs.py            write docs/reference/errors.md and docs/reference/rules/
    python scripts/docs.py --check    change nothing; exit 1 if one of them is stale or a link leads nowhere

Errors come from `penstock.errors`, rules from the docstrings of their files (`penstock._clinic.pages`).

Links are those from one page to a file or heading of this repository; addresses on the web are not asked.
Needs neither torch nor any tool.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock import errors
from penstock._clinic import pages as rule_pages
from penstock._clinic.causes import CAUSES

ROOT = Path(__file__).resolve().parents[1]
ERRORS_PAGE = Path("docs/reference/errors.md")
RULES_FOLDER = Path("docs/reference/rules")

FAMILIES = {
    "PS0": "Options refused at once",
    "PS3": "Mistakes in the dataset (warnings)",
    "PS5": "Samples, batches and pickling",
    "PS6": "Workers",
    "PS7": "Shared memory",
}

_HEAD = """\
# Errors

<!-- Written by scripts/docs.py from penstock.errors. Change the text there, then run `make docs`. -->

An error has four parts: what happened, why we think so, what to change, and a code. `penstock explain CODE`
prints the page of a code in the terminal; without a code it lists them all. A code is never given a second
meaning. The classes are in `penstock.errors`:

```
{tree}
```

An exception of your own code keeps its own type; it only gains the worker's traceback and the index of the
sample.
"""

_RULES_HEAD = """\
# Causes

<!-- Written by scripts/docs.py from the docstrings of the rules. Change them, then run `make docs`. -->

Every cause that `penstock doctor` knows, by its code. A cause marked *lint* is also found by `penstock lint`,
from the source alone. `penstock explain CODE` prints the same pages in the terminal.
"""
_RULE_HEAD = "<!-- Written by scripts/docs.py from the docstring of the rule. Change the text there. -->"

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]*`")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def errors_page() -> str:
    """The text of docs/reference/errors.md."""
    tree = (errors.__doc__ or "").split("\n\n")[1]
    parts = [_HEAD.format(tree=tree)]
    for prefix, title in FAMILIES.items():
        parts.append(f"## {prefix}xx: {title}\n")
        for code, (name, text) in errors.CODES.items():
            if code.startswith(prefix):
                parts.append(f"### {code}\n\n**{name}**\n\n{text}\n")
    return "\n".join(parts)


def generated() -> dict[Path, str]:
    """Every page that is written here, by its place."""
    found = {ERRORS_PAGE: errors_page(), RULES_FOLDER / "index.md": rules_index()}
    for code, cause in CAUSES.items():
        title, _, body = rule_pages.page(code).partition("\n")
        found[RULES_FOLDER / f"{cause}.md"] = f"{title}\n\n{_RULE_HEAD}\n{body}"
    return found


def rules_index() -> str:
    """The list of causes, family by family."""
    parts = [_RULES_HEAD]
    for title, rows in rule_pages.families():
        causes = [(code, name) for code, name in rows if code in CAUSES]
        if causes:
            parts.append(f"## {title.replace('  ', ': ', 1)}\n")
            parts.append("| code | cause | |\n|---|---|---|")
            parts += [f"| {code} | [{name}]({name}.md) | {_marked(code)} |" for code, name in causes]
            parts.append("")
    return "\n".join(parts)


def _marked(code: str) -> str:
    return "*lint*" if list(rule_pages.RULES.glob(f"source/{code.lower()}_*.py")) else ""


def problems(root: Path) -> list[str]:
    """What is wrong with the pages under `root`, one line each; none when all is well."""
    found = [f"{code} has no family in scripts/docs.py" for code in errors.CODES if code[:3] not in FAMILIES]
    wanted = generated()
    for place, text in wanted.items():
        page = root / place
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            found.append(f"{place} is stale: run `make docs`")
    extra = {path.relative_to(root) for path in (root / RULES_FOLDER).glob("*.md")} - set(wanted)
    found += [f"{place} belongs to no cause: remove it" for place in sorted(extra)]
    for path in pages(root):
        found += [f"{path.relative_to(root)}: {problem}" for problem in broken_links(path)]
    return found


def pages(root: Path) -> list[Path]:
    """Every page of the documentation, and the texts at the root."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def broken_links(page: Path) -> Iterator[str]:
    """The links of one page to files or headings that do not exist."""
    for target in _LINK.findall(_prose(page)):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        if not linked.exists():
            yield f"{target} does not exist"
        elif anchor and linked.suffix == ".md" and anchor not in headings(linked):
            yield f"{target}: {linked.name} has no heading #{anchor}"


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual Markdown renderers name them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in _HEADING.findall(text)
    }


def _prose(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    for pattern in (_COMMENT, _FENCE, _INLINE_CODE):
        text = pattern.sub("", text)
    return text


def main(arguments: list[str] | None = None) -> int:
    """Write or check; return the exit status."""
    parser = argparse.ArgumentParser(description="Write the generated pages, or check all pages.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if something is wrong")
    options = parser.parse_args(arguments)
    if not options.check:
        for place, text in generated().items():
            (ROOT / place).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / place).write_text(text, encoding="utf-8")
    found = problems(ROOT)
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
