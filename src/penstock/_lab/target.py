"""What the user has asked to have examined, and how to start it.

| form | is run as |
|---|---|
| `train.py`, `bin/train` | `python train.py args` |
| `package.module` | `python -m package.module args` |
| `package.module:callable`, `file.py:callable` | a small program that calls it and iterates what it returns |

Nothing of the target is imported or run here: everything is read from its source.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_FILES = 60  # of the user, that are looked through for imports
MOST_BYTES = 2 << 20  # of one of them

# Some of these would parse: `{"lr": 0.1}` is Python, too.
_NOT_PYTHON = frozenset({".json", ".yaml", ".yml", ".toml", ".csv", ".txt", ".md", ".sh", ".cfg", ".ini"})
_CALLABLE = re.compile(r"(?P<where>.+):(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


class TargetError(Exception):
    """Something that cannot be examined; refused before anything was started.

    `kind`: "no-such-file", "directory", "not-python", "no-such-module", "no-such-callable".
    """

    def __init__(self, kind: str, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.kind, self.what, self.why, self.fix = kind, what, why, fix


@dataclass(frozen=True, slots=True)
class Target:
    """A program, ready to be started any number of times."""

    text: str  # as the user wrote it
    file: str  # absolute path of the script, or of the module's source
    module: str | None = None  # for `python -m`, or of the callable
    function: str | None = None
    args: tuple[str, ...] = ()
    cwd: str = ""
    python: str = sys.executable

    @property
    def name(self) -> str:
        """What to call it."""
        return self.text

    @property
    def files(self) -> tuple[str, ...]:
        """The user's own source files: this one, and local ones that it imports, the nearest first."""
        return user_files(self.file, (self.root, self.cwd))

    @property
    def root(self) -> str:
        """The directory that Python puts first on its path."""
        if self.module is not None and self.function is None:
            return self.cwd
        if self.module is not None:
            levels = self.module.count(".") + (Path(self.file).name == "__init__.py")
            return str(Path(self.file).parents[levels])
        return str(Path(self.file).parent)

    def command(self, runner: str) -> tuple[str, ...]:
        """The arguments to start it with; `runner` is where `program` was written, if there is one."""
        start = (self.python, "-u")
        if self.function is not None:
            return (*start, runner, *self.args)
        if self.module is not None:
            return (*start, "-m", self.module, *self.args)
        return (*start, self.script, *self.args)

    @property
    def script(self) -> str:
        """The script as it would be named on the command line."""
        where = Path(self.text)
        return self.text if (Path(self.cwd) / where).resolve() == Path(self.file).resolve() else self.file

    @property
    def program(self) -> str | None:
        """The small program that stands in for a training loop around a callable."""
        if self.function is None:
            return None
        return _PROGRAM.format(root=self.root, module=self.module, function=self.function, text=self.text)


def find(text: str, args: tuple[str, ...] = (), *, cwd: str | None = None) -> Target:
    """Read a TARGET of the command line; raise `TargetError` for what cannot be examined."""
    here = cwd or os.getcwd()  # noqa: PTH109 - a string
    path = Path(here, text)
    if path.is_dir() and not _module_file(text, here):
        raise TargetError(
            "directory", f"`{text}` is a directory", fix="name the script that trains, such as `train.py`"
        )
    if path.is_file():
        _parse(path, text)
        return Target(text, str(path.resolve()), args=args, cwd=here)
    match = _CALLABLE.fullmatch(text)
    if match and not text.endswith(".py"):
        return _find_callable(text, match["where"], match["name"], args, here)
    if text.endswith(".py") or "/" in text or not _MODULE.fullmatch(text):
        raise TargetError(
            "no-such-file", f"there is no file `{text}`", why=f"looked in {here}", fix=_near(path)
        )
    return Target(text, _find_module(text, here), module=text, args=args, cwd=here)


def _find_callable(text: str, where: str, name: str, args: tuple[str, ...], here: str) -> Target:
    path = Path(here, where)
    if where.endswith(".py") or path.is_file():
        if not path.is_file():
            raise TargetError(
                "no-such-file", f"there is no file `{where}`", why=f"looked in {here}", fix=_near(path)
            )
        module, file = path.stem, str(path.resolve())
    elif _MODULE.fullmatch(where):
        module, file = where, _find_module(where, here, is_run=False)
    else:
        raise TargetError("no-such-file", f"there is no file `{where}`", why=f"looked in {here}")
    tree = _parse(Path(file), where)
    names = _top_names(tree)
    if name.partition(".")[0] not in names and "*" not in names:
        known = ", ".join(f"`{each}`" for each in sorted(_functions(tree))[:8])
        raise TargetError(
            "no-such-callable",
            f"`{where}` defines no `{name}`",
            why=f"its functions are {known}" if known else "it defines no function at all",
            fix="name a function that takes no argument and returns a DataLoader, or several",
        )
    return Target(text, file, module=module, function=name, args=args, cwd=here)


def _find_module(name: str, here: str, *, is_run: bool = True) -> str:
    file = _module_file(name, here, is_run=is_run)
    if file is None:
        raise TargetError(
            "no-such-module",
            f"there is no module `{name}`",
            why=f"looked in {here} and on Python's path",
            fix="name a script such as `train.py`, or run from the directory that holds the package",
        )
    _parse(Path(file), name)
    return file


def _module_file(name: str, here: str, *, is_run: bool = True) -> str | None:
    """The source of a module, found without importing anything."""
    if not _MODULE.fullmatch(name):
        return None
    parts = name.split(".")
    inits = ("__main__.py",) if is_run else ("__init__.py",)
    for place in (here, *sys.path):
        base = Path(place or here, *parts)
        candidates = [base.with_suffix(".py") if len(parts) else base, *(base / init for init in inits)]
        for candidate in candidates:
            if candidate.is_file():
                return str(candidate.resolve())
    return None


def _parse(path: Path, text: str) -> ast.Module:
    if path.suffix == ".ipynb":
        raise TargetError(
            "not-python", f"`{text}` is a notebook",
            fix="call `penstock.diagnose(loader)` in a cell, or `jupyter nbconvert --to script` first",
        )  # fmt: skip
    if path.suffix in _NOT_PYTHON:
        raise TargetError("not-python", f"`{text}` is no Python script", fix="name the script that trains")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise TargetError("no-such-file", f"`{text}` cannot be read", why=str(error.strerror)) from error
    try:
        return ast.parse(source, filename=str(path))
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        at = f" at line {line}" if line and path.suffix == ".py" else ""
        raise TargetError(
            "not-python",
            f"`{text}` is not Python that {sys.version.split()[0]} can read{at}",
            why=str(getattr(error, "msg", error)),
            fix="run `python` on it to see the whole message" if at else "name a Python script",
        ) from error


def _near(path: Path) -> str:
    """A name that may have been meant."""
    import difflib

    try:
        names = [each.name for each in path.parent.iterdir() if each.suffix == ".py"]
    except OSError:
        return "give the path of the script, from this directory or from the root"
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean `{close[0]}`?" if close else "give the path of the script that trains"


def _top_names(tree: ast.Module) -> set[str]:
    """Names that a module binds anywhere outside of its functions and classes; "*" when that is open."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name):
            names.add(node.id)
        waiting.extend(ast.iter_child_nodes(node))
    return names | ({"*"} if "__getattr__" in names else set())


def _functions(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def user_files(start: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """A source file and the local ones that it imports, and those that they import, the nearest first."""
    found = [start]
    for file in found:  # grows while it is read
        for name in _imported(file):
            for candidate in _local(name, (*roots, str(Path(file).parent))):
                if candidate not in found and len(found) < MOST_FILES:
                    found.append(candidate)
    return tuple(found)


def _imported(file: str) -> Iterator[str]:
    try:
        if Path(file).stat().st_size > MOST_BYTES:
            return
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield base
            joint = "" if base.endswith(".") or not base else "."
            yield from (f"{base}{joint}{alias.name}" for alias in node.names if alias.name != "*")


def _local(name: str, roots: tuple[str, ...]) -> Iterator[str]:
    """Where a module of this name would be, beside the user's own files; never among installed packages."""
    level = len(name) - len(name.lstrip("."))
    parts = [part for part in name.split(".") if part]
    if level:
        here = Path(roots[-1])
        roots = (str(here.parents[level - 2]) if level > 1 else str(here),)
    for root in dict.fromkeys(roots):
        if not root or "site-packages" in root:
            continue
        base = Path(root, *parts)
        for candidate in (base.with_name(base.name + ".py"), base / "__init__.py"):
            if parts and candidate.is_file() and "site-packages" not in str(candidate):
                yield str(candidate.resolve())


_PROGRAM = '''\
"""Call `{text}` and iterate what it returns, as a training loop would."""

import importlib
import sys

if {root!r} not in sys.path:
    sys.path.insert(0, {root!r})


def loaders_of(made):
    from torch.utils.data import DataLoader

    if isinstance(made, DataLoader):
        return [made]
    if isinstance(made, dict):
        made = list(made.values())
    if isinstance(made, (list, tuple)):
        return [loader for each in made for loader in loaders_of(each)]
    return []


def main():
    made = importlib.import_module({module!r})
    for name in {function!r}.split("."):
        made = getattr(made, name)
    loaders = loaders_of(made() if callable(made) else made)
    if not loaders:
        raise TypeError("`{text}` returned no torch.utils.data.DataLoader")
    for epoch in range(2):
        for loader in loaders:
            for batch in loader:
                pass


if __name__ == "__main__":
    main()
'''
