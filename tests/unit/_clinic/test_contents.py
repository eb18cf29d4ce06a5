"""What the contents of samples tell."""

from __future__ import annotations

from penstock._clinic import contents
from penstock._clinic.facts import Facts
from penstock._lab.record import SampleSeen, Trial


def seen(index, digest, *, iterator=0, worker=-1):
    return SampleSeen("a#0", iterator, worker, index=index, digest=digest)


def test_readings_are_by_pass_and_index():
    trial = Trial(
        samples=(seen(0, "a"), seen(1, "b"), seen(1, "late"), seen(0, "c", iterator=1), seen(2, ""))
    )

    assert contents.readings(trial, "a#0") == [{"0": "a", "1": "b"}, {"0": "c"}]


def test_an_index_may_be_anything():
    assert contents.keyed([1, 2]) == contents.keyed((1, 2))
    assert contents.keyed("1") != contents.keyed(1)


def test_only_what_is_in_both_is_compared():
    compared = contents.compare({"0": "a", "1": "b", "2": "c"}, {"1": "b", "2": "x", "3": "d"})

    assert (compared.both, compared.differ, compared.example) == (2, 1, "2")
    assert compared.share == 0.5
    assert contents.compare({}, {}).share == 0.0


def test_chance_is_what_differs_when_it_is_read_again():
    one = Trial(samples=(seen(0, "a"), seen(1, "b"), seen(2, "c")))
    other = Trial(samples=(seen(0, "a"), seen(1, "x")))

    assert contents.random_share(Facts(observed=one, ladder=(other,)), "a#0") == 0.5
    assert contents.random_share(Facts(observed=one), "a#0") is None


def test_streams_are_by_worker():
    trial = Trial(
        samples=(seen(0, "a", worker=0), seen(0, "a", worker=1), seen(1, "b", worker=1), seen(0, "z"))
    )

    assert contents.streams(trial, "a#0", 0) == {0: {"0": "a"}, 1: {"0": "a", "1": "b"}}


def test_contents_of_their_own():
    assert contents.distinct_share(["a", "a", "b", "c"]) == 0.75
    assert contents.distinct_share([]) == 0.0
