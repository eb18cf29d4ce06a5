"""How messages name things."""

from __future__ import annotations

import pytest

from penstock._clinic import naming
from penstock._lab.record import LoaderSeen, Site


@pytest.mark.parametrize(
    ("loader", "name"),
    [
        (LoaderSeen("k", name="train"), "`train`"),
        (LoaderSeen("k", site=Site("/a/train.py", 31)), "the loader of train.py:31"),
        (LoaderSeen("k"), "the loader"),
        (None, "the loader"),
    ],
)
def test_loaders(loader, name):
    assert naming.loader_named(loader) == name


@pytest.mark.parametrize(
    ("index", "name"),
    [
        (7, "sample 7"),
        ("a.png", "sample 'a.png'"),
        ([7], "sample 7"),
        ([7, 8], "a sample of the batch [7, 8]"),
        (list(range(9)), "a sample of the batch [0, 1, 2, 3, 4, 5, …]"),
        (None, "a sample"),
    ],
)
def test_samples(index, name):
    assert naming.sample_named(index) == name


def test_changes_name_the_value_now():
    loader = LoaderSeen("k", settings={"num_workers": 4}, start_method="forkserver")

    assert naming.option(loader, "num_workers", 0) == "num_workers=4 → num_workers=0"
    assert naming.option(loader, "timeout", 3) == "timeout=3"
    assert naming.method(loader, "fork") == (
        "multiprocessing_context='forkserver' → multiprocessing_context='fork'"
    )


def test_long_texts_are_cut_to_their_first_line():
    assert naming.short("one\ntwo") == "one"
    assert naming.short("abcdef", 4) == "abc…"
    assert naming.short("") == ""
