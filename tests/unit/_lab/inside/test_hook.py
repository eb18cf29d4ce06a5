from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest

from penstock._lab.inside.hook import ImportHook


@pytest.fixture
def hook(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "watched_module.py").write_text("VALUE = 1\n")
    (tmp_path / "broken_module.py").write_text("raise OSError('broken')\n")
    hook = ImportHook()
    hook.install()
    yield hook
    sys.meta_path.remove(hook)
    for name in ("watched_module", "broken_module"):
        sys.modules.pop(name, None)


def test_the_call_comes_when_the_module_has_run(hook):
    seen = []
    hook.when_imported("watched_module", lambda: seen.append(sys.modules["watched_module"].VALUE))
    assert seen == []
    module = importlib.import_module("watched_module")
    assert seen == [1]
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert module.__spec__.loader is module.__loader__


def test_a_module_that_was_looked_for_is_told_when_it_is_imported(hook):
    seen = []
    hook.when_imported("watched_module", lambda: seen.append(1))

    for _ in range(2):
        assert importlib.util.find_spec("watched_module") is not None
    assert seen == []
    importlib.import_module("watched_module")

    assert seen == [1]


def test_a_module_that_is_there_is_told_at_once(hook):
    seen = []
    hook.when_imported("sys", lambda: seen.append(1))
    assert seen == [1]


def test_a_module_that_fails_fails_as_ever(hook):
    hook.when_imported("broken_module", lambda: pytest.fail("it was not imported"))
    with pytest.raises(OSError, match="broken"):
        importlib.import_module("broken_module")
