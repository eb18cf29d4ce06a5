from __future__ import annotations

import difflib

import pytest

from penstock._cli.patching import PatchRefusedError, write

OLD = "import os\n\n\ndef read(index):\n    return index\n\n\nloader = make(num_workers=4)\n"
NEW = OLD.replace("num_workers=4", "num_workers=2").replace("return index", "return index + 1")


def diff(old: str, new: str, name: str = "train.py", context: int = 3) -> str:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), name, name, n=context
    )
    return "".join(
        line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines
    )


@pytest.fixture
def train(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(OLD)
    return file


@pytest.mark.parametrize("context", [0, 1, 3])
def test_a_patch_is_applied_and_the_old_text_kept(train, context):
    train.chmod(0o750)
    (written,) = write(diff(OLD, NEW, context=context), base=train.parent)
    assert train.read_text() == NEW
    assert written.backup == train.with_name("train.py.orig")
    assert written.backup.read_text() == OLD
    assert train.stat().st_mode & 0o777 == 0o750
    assert sorted(path.name for path in train.parent.iterdir()) == ["train.py", "train.py.orig"]


def test_undoing_puts_the_old_text_back(train):
    (written,) = write(diff(OLD, NEW), base=train.parent)
    written.undo()
    assert train.read_text() == OLD
    assert [path.name for path in train.parent.iterdir()] == ["train.py"]


def test_an_older_backup_is_never_overwritten(train):
    train.with_name("train.py.orig").write_text("mine")
    (written,) = write(diff(OLD, NEW), base=train.parent)
    assert written.backup.name == "train.py.orig1"
    assert train.with_name("train.py.orig").read_text() == "mine"


@pytest.mark.parametrize("name", ["a/train.py", "./train.py"])
def test_the_name_may_have_a_prefix(train, name):
    write(diff(OLD, NEW, name), base=train.parent)
    assert train.read_text() == NEW


def test_an_absolute_name_needs_no_base(train, tmp_path_factory):
    write(diff(OLD, NEW, str(train)), base=tmp_path_factory.mktemp("elsewhere"))
    assert train.read_text() == NEW


def test_a_link_stays_a_link(train):
    link = train.with_name("link.py")
    link.symlink_to(train)
    write(diff(OLD, NEW, "link.py"), base=train.parent)
    assert link.is_symlink()
    assert train.read_text() == NEW


def test_lines_that_moved_are_found_when_there_is_only_one_such_place(train):
    train.write_text("# added\n# since\n" + OLD)
    write(diff(OLD, NEW), base=train.parent)
    assert train.read_text() == "# added\n# since\n" + NEW


def test_two_patches_may_add_lines_at_one_place(train):
    first, second = (OLD.replace("import os\n", f"import os\nimport {name}\n") for name in ("math", "time"))
    write(diff(OLD, first), base=train.parent)
    write(diff(OLD, second), base=train.parent)
    assert train.read_text() == OLD.replace("import os\n", "import os\nimport time\nimport math\n")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_line_ends_and_encoding_stay(train, encoding):
    old = "# coding: latin-1\nname = 'Zoë'\nx = 1\n" if encoding == "latin-1" else "name = 'Zoë'\nx = 1\n"
    new = old.replace("x = 1", "x = 2")
    train.write_bytes(old.replace("\n", "\r\n").encode(encoding))
    write(diff(old, new), base=train.parent)
    assert train.read_bytes() == new.replace("\n", "\r\n").encode(encoding)


def test_a_file_without_a_last_newline_can_be_changed(train):
    train.write_text("a = 1\nb = 2")
    write(diff("a = 1\nb = 2", "a = 1\nb = 3"), base=train.parent)
    assert train.read_text() == "a = 1\nb = 3"


def test_lines_can_be_added_at_the_start_and_at_the_end(train):
    new = "first = 1\n" + OLD + "last = 1\n"
    write(diff(OLD, new, context=0), base=train.parent)
    assert train.read_text() == new


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ("", "it changes nothing"),
        ("what?", "it changes nothing"),
        ("@@ -1 +1 @@\n-a\n+b\n", "it is no unified diff: it names no file"),
        ("--- train.py\n@@ -1 +1 @@\n", "it is no unified diff: a line '+++' is missing"),
        ("--- train.py\n+++ train.py\n@@ -1,2 +1,2 @@\n-a\n", "it is no unified diff: a hunk ends too early"),
        ("--- train.py\n+++ train.py\n@@ -1 +1 @@\n-a\n?b\n", "it is no unified diff: a hunk ends too early"),
        (diff(OLD, NEW, "none.py"), "there is no file none.py"),
        (diff(OLD, NEW, "/dev/null"), "there is no file /dev/null"),
        (
            diff(OLD.replace("index", "other"), NEW),
            "the lines to change near line 1 are not there as they were",
        ),
        (diff(OLD, OLD.replace("import os", "import (")), "train.py would not be Python any more"),
    ],
)
def test_a_patch_that_does_not_fit_changes_nothing(train, patch, why):
    with pytest.raises(PatchRefusedError, match=why.replace("(", "[(]").replace("+", "[+]")):
        write(patch, base=train.parent)
    assert train.read_text() == OLD
    assert [path.name for path in train.parent.iterdir()] == ["train.py"]


def test_a_patch_of_two_files_is_applied_to_both_or_to_none(train):
    other = train.with_name("other.py")
    other.write_text("x = 1\n")
    both = diff(OLD, NEW) + diff("x = 1\n", "x = 2\n", "other.py")
    with pytest.raises(PatchRefusedError):
        write(both + diff("y = 1\n", "y = 2\n", "other.py"), base=train.parent)
    assert train.read_text() == OLD
    assert len(write(both, base=train.parent)) == 2
    assert (train.read_text(), other.read_text()) == (NEW, "x = 2\n")


def test_a_file_that_cannot_be_written_leaves_the_others_as_they_were(train, monkeypatch):
    from penstock._cli import patching

    other = train.with_name("other.py")
    other.write_text("x = 1\n")
    replace = patching._replace

    def fails_at_the_second(file, content):
        if file == other:
            raise PermissionError("read-only")
        return replace(file, content)

    monkeypatch.setattr(patching, "_replace", fails_at_the_second)
    with pytest.raises(PermissionError):
        write(diff(OLD, NEW) + diff("x = 1\n", "x = 2\n", "other.py"), base=train.parent)
    assert train.read_text() == OLD
    assert sorted(path.name for path in train.parent.iterdir()) == ["other.py", "train.py"]


def test_a_file_of_unknown_encoding_is_refused(train):
    train.write_bytes(b"# coding: latin-99\nx = 1\n")
    with pytest.raises(PatchRefusedError, match=r"the encoding of train[.]py is unknown"):
        write(diff("x = 1\n", "x = 2\n"), base=train.parent)
