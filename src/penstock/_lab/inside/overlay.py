"""Run a patched text in place of a source file, without touching the file.

The environment variable PENSTOCK_OVERLAY names a JSON file: {absolute path: text}. In every Python process
of the patient `install` sees to it that importing such a file, or running it, takes the text. Everything
else stays as it was: `__file__`, `sys.argv`, `sys.path[0]`, paths in tracebacks. No bytecode of a patched
text is written.

The script itself is read by the interpreter before any of our code could take part. For it this file is run
in its place, with the script's name as first argument: `python overlay.py train.py args`.

Imports nothing of ours: it must work as a script, by its path alone.
"""

from __future__ import annotations

import os
import sys
from typing import Any

VARIABLE = "PENSTOCK_OVERLAY"

_texts: dict[str, str] = {}  # by real path


def install() -> None:
    """Let this process read patched texts; does nothing without the variable, or a second time."""
    path = os.environ.get(VARIABLE)
    if not path or _texts:
        return
    import json

    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is not loaded in the program
        _texts.update({os.path.realpath(name): text for name, text in json.load(file).items()})
    _patch_imports()
    _patch_open_code()
    _show_patched_lines()


def text_of(path: Any) -> str | None:
    """The text to run in place of a file, if there is one."""
    try:
        return _texts.get(os.path.realpath(os.fspath(path)))
    except (TypeError, ValueError, OSError):
        return None


def _patch_imports() -> None:
    from importlib.machinery import SourceFileLoader

    plain_code, plain_data = SourceFileLoader.get_code, SourceFileLoader.get_data

    def get_code(self: Any, fullname: str) -> Any:
        path = self.get_filename(fullname)
        text = text_of(path)
        if text is None:
            return plain_code(self, fullname)
        return compile(text, path, "exec", dont_inherit=True)  # past the cache, which is the file's

    def get_data(self: Any, path: str) -> bytes:
        text = text_of(path)
        return plain_data(self, path) if text is None else text.encode()

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    SourceFileLoader.get_data = get_data  # type: ignore[method-assign]


def _patch_open_code() -> None:
    """For `runpy`, with which a spawned worker runs the main script again."""
    import io

    plain = io.open_code

    def open_code(path: str) -> Any:
        text = text_of(path)
        return plain(path) if text is None else io.BytesIO(text.encode())

    io.open_code = open_code


def _show_patched_lines() -> None:
    import linecache

    for path, text in _texts.items():
        lines = [line + "\n" for line in text.splitlines()]
        linecache.cache[path] = (len(text), None, lines, path)


def run_script(argv: list[str]) -> None:
    """Run a script as `python SCRIPT args` would, with its patched text."""
    import builtins
    import types

    script = argv[0]
    sys.argv[:] = argv
    sys.path[0] = os.path.dirname(os.path.realpath(script))  # noqa: PTH120
    text = text_of(script)
    if text is None:
        with open(script, encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
    code = compile(text, script, "exec", dont_inherit=True)
    if script not in _texts:
        import linecache

        linecache.cache[script] = (len(text), None, [line + "\n" for line in text.splitlines()], script)
    main: Any = types.ModuleType("__main__")
    main.__file__, main.__builtins__, main.__spec__ = script, builtins, None
    main.__dict__["__cached__"] = None
    sys.modules["__main__"] = main
    exec(code, main.__dict__)  # noqa: S102 - the user's own program


if __name__ == "__main__":
    # `site` has run by now, and with it the other copy of this file, if the observer is there.
    sys.modules.setdefault("penstock_overlay", sys.modules["__main__"])
    install()
    run_script(sys.argv[1:])
