"""Reading source files: whatever they are, reading never raises."""

from __future__ import annotations

import json

import pytest

from penstock._clinic import source


def test_files_come_in_the_order_in_which_they_are_named_and_once(tmp_path):
    for name in ("b.py", "a.py"):
        (tmp_path / name).write_text("x = 1\n")
    paths = [tmp_path / "b.py", tmp_path / "a.py", tmp_path / "b.py"]
    read = source.read(paths)
    assert [file.path for file in read.files] == [str(tmp_path / "b.py"), str(tmp_path / "a.py")]
    assert read.broken == {}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"def f(:\n", "line 1: invalid syntax"),
        (b"x = 1\n\tprint 'two'\n", "line 2: unexpected indent"),
        (b"x = '\0'\n", "source code string cannot contain null bytes"),
        (b"# coding: klingon\nx = '\xff'\n(\n", "line 3: '(' was never closed"),
    ],
)
def test_what_is_no_python_is_broken_with_its_reason(tmp_path, content, why):
    path = tmp_path / "broken.py"
    path.write_bytes(content)
    read = source.read([path])
    assert read.files == ()
    assert why in read.broken[str(path)]


def test_a_file_that_is_not_there_is_broken(tmp_path):
    path = str(tmp_path / "none.py")
    assert source.read([path]).broken == {path: "No such file or directory"}


def test_a_file_that_is_far_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "LARGEST", 1_000_000)
    path = tmp_path / "large.py"
    path.write_bytes(b"x" * 1_000_001)
    assert source.read([path]).broken == {str(path): "larger than 1 MB"}


@pytest.mark.parametrize(
    "content",
    [
        "# coding: latin-1\nname = 'é'\n".encode("latin-1"),
        "\ufeffname = 'é'\n".encode(),
        "name = 'é'\r\n".encode(),
        b"name = '\xe9'\n",
    ],
    ids=["declared", "with a mark", "with carriage returns", "undeclared"],
)
def test_encodings_are_taken_as_they_come(tmp_path, content):
    path = tmp_path / "text.py"
    path.write_bytes(content)
    (file,) = source.read([path]).files
    assert "name = '" in file.text
    assert "\r" not in file.text


def notebook(*cells):
    made = [{"cell_type": kind, "source": text.splitlines(keepends=True)} for kind, text in cells]
    return json.dumps({"cells": made})


def test_the_code_of_a_notebook_is_read_without_the_magic(tmp_path):
    path = tmp_path / "train.ipynb"
    path.write_text(
        notebook(("code", "%matplotlib inline\nx = 1"), ("markdown", "# Title"), ("code", "!pip\ny = 2"))
    )
    (file,) = source.read([path]).files
    assert file.text.splitlines() == ["pass  # %matplotlib inline", "x = 1", "pass  # !pip", "y = 2"]
    assert file.is_notebook


def test_cells_of_another_language_do_not_hide_the_rest_of_a_notebook(tmp_path):
    path = tmp_path / "train.ipynb"
    shell = "!docker run \\\n    --shm-size 1g \\\n    image\nx = 1"
    path.write_text(
        notebook(("code", "%%bash\npip install torch\ncd data"), ("code", shell), ("code", "if x:\n  y = 2"))
    )
    (file,) = source.read([path]).files
    lines = ["# pass  # %%bash", "# pip install torch", "# cd data"]
    lines += ["pass  # !docker run \\", "#     --shm-size 1g \\", "#     image", "x = 1", "if x:", "  y = 2"]
    assert file.text.splitlines() == lines


def test_a_notebook_without_any_python_is_broken(tmp_path):
    path = tmp_path / "train.ipynb"
    path.write_text(notebook(("code", "cd data"), ("code", "for x in")))
    assert source.read([path]).broken == {str(path): "line 1: invalid syntax"}


@pytest.mark.parametrize("content", ["{", "[]", '{"cells": 3}', '{"cells": [{"cell_type": "code"}]}'])
def test_what_is_no_notebook_is_broken(tmp_path, content):
    path = tmp_path / "train.ipynb"
    path.write_text(content)
    assert source.read([path]).broken == {str(path): "it is no notebook"}


def test_text_at_hand_is_read_like_a_file():
    assert source.read_text("x = 1\n").files[0].path == "<stdin>"
    assert source.read_text("x = (\n").broken == {"<stdin>": "line 1: '(' was never closed"}


def test_folders_are_searched_but_not_those_of_others(tmp_path):
    for name in ("a.py", "deep/b.ipynb", ".venv/c.py", "deep/__pycache__/d.py", "e.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = [path.removeprefix(f"{tmp_path}/") for path in source.find([tmp_path])]
    assert found == ["a.py", "deep/b.ipynb"]
    assert list(source.find([tmp_path / "e.txt"])) == [str(tmp_path / "e.txt")]
