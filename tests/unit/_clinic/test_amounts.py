"""Amounts in words."""

from __future__ import annotations

import pytest

from penstock._clinic import amounts


@pytest.mark.parametrize(
    ("nbytes", "words"),
    [
        (0, "0 bytes"),
        (512, "512 bytes"),
        (64 << 20, "64 MB"),
        (3 << 29, "1.5 GB"),
        (2 << 30, "2 GB"),
        (1536, "1.5 KB"),
    ],
)
def test_sizes(nbytes, words):
    assert amounts.size(nbytes) == words


def test_counts():
    assert amounts.count(1, "batch") == "1 batch"
    assert amounts.count(3, "batch") == "3 batches"
    assert amounts.count(2_000, "sample") == "2,000 samples"


def test_lists():
    assert amounts.listed(["a", "b"]) == "a, b"
    assert amounts.listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"
