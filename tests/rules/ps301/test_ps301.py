"""PS301 iterable-not-sharded."""

from __future__ import annotations

import dataclasses

from penstock._clinic.rules.data.ps301_iterable_not_sharded import IterableNotSharded
from penstock._lab.record import DatasetSeen
from tests.rules.seen import facts, loader, passed, samples, trial, zero

STREAM = loader(dataset=DatasetSeen(type="Lines", is_iterable=True), length=None)


def found(observed, *rungs):
    return list(IterableNotSharded().check(facts(observed, *rungs)))


def streamed(*streams, **fields):
    """A trial in which each worker yields one of these streams."""
    made = tuple(each for worker, stream in enumerate(streams) for each in samples(stream, worker=worker))
    return trial(STREAM, samples=made, **fields)


def alone(count):
    """The rung without workers: a whole epoch of so many samples."""
    return zero(loaders=(STREAM,), iterators=(passed(samples=count, workers=()),))


def test_workers_that_yield_the_same_stream_are_found():
    (finding,) = found(streamed(range(10), range(10), range(10)))

    assert finding.severity == "error"
    assert finding.message == (
        "every one of the 3 workers of `train_loader` yields the whole of `Lines`: 10 different samples came "
        "from each of them, so an epoch repeats the data"
    )
    assert finding.experiments[0].change.mends == ("shard-iterable",)
    assert finding.prescription.fix.name == "shard"


def test_workers_that_shuffle_the_same_stream_are_found():
    (finding,) = found(streamed(range(20), range(19, -1, -1)))

    assert finding.confidence == "observed"


def test_samples_that_went_unseen_do_not_hide_it():
    first, second = samples(range(20), worker=0), samples(range(20), worker=1)

    assert found(trial(STREAM, samples=(*first[:8], *second[4:12])))


def test_shards_are_left_alone():
    assert not found(streamed(range(0, 20, 2), range(1, 20, 2)))


def test_shards_of_data_that_repeats_itself_are_left_alone():
    words = [number % 7 for number in range(60)]

    assert not found(streamed(words[::2], words[1::2], iterators=(passed(samples=60),)), alone(60))
    assert not found(streamed(words[::2], words[1::2]))


def test_a_stream_of_one_content_tells_nothing():
    assert not found(streamed([7] * 10, [7] * 10))


def test_one_worker_repeats_nobody():
    assert not found(streamed(range(10)))


def test_an_epoch_as_many_times_as_long_is_found_although_chance_hides_the_contents():
    first, second = samples(range(10), worker=0), samples(range(100, 110), worker=1)
    named = [
        dataclasses.replace(each, parts=(each.digest, f"name {each.index}")) for each in (*first, *second)
    ]
    observed = trial(STREAM, samples=tuple(named), iterators=(passed(samples=20),))

    (finding,) = found(observed, alone(10))

    assert finding.severity == "error"
    assert finding.message.endswith("an epoch has 20 samples, and 10 without workers")


def test_a_longer_epoch_of_samples_that_have_nothing_in_common_is_only_suspected():
    observed = streamed(range(10), range(100, 110), iterators=(passed(samples=20),))

    (finding,) = found(observed, alone(10))

    assert (finding.severity, finding.confidence) == ("info", "suspected")


def test_streams_whose_samples_agree_now_and_then_at_the_same_place_are_one_under_augmentation():
    # One of seven ways to change a sample, drawn by each worker for itself.
    ways = [[place * seed % 7 for place in range(1, 141)] for seed in (3, 5)]
    observed = streamed(
        *([(place, way) for place, way in enumerate(of)] for of in ways), iterators=(passed(samples=280),)
    )

    (finding,) = found(observed, alone(140))

    assert finding.severity == "error"


def test_draws_of_chance_from_few_samples_are_only_suspected():
    draws = [[place * seed % 11 for place in range(1, 141)] for seed in (3, 5)]
    observed = streamed(*draws, iterators=(passed(samples=280),))

    assert found(observed, alone(140))[0].severity == "info"


def of_lengths(*streams):
    """Workers whose samples have nothing in common but their lengths."""
    made = [
        dataclasses.replace(each, digest=f"{worker}-{each.index}", shape=f"i64[{length}]")
        for worker, lengths in enumerate(streams)
        for each, length in zip(samples(lengths, worker=worker), lengths, strict=True)
    ]
    return trial(STREAM, samples=tuple(made), iterators=(passed(samples=len(made)),))


def test_streams_with_the_same_lengths_at_every_place_are_one():
    lengths = [5 + place * place % 13 for place in range(60)]

    assert found(of_lengths(lengths, lengths), alone(60))[0].severity == "error"


def test_lengths_that_only_grow_or_differ_somewhere_are_only_suspected():
    growing = [5 + place // 4 for place in range(60)]
    lengths = [5 + place * place % 13 for place in range(60)]

    assert found(of_lengths(growing, growing), alone(60))[0].severity == "info"
    assert found(of_lengths(lengths, [*lengths[:-1], 99]), alone(60))[0].severity == "info"


def test_parts_of_a_long_stream_that_each_worker_shuffles_are_found():
    parts = (range(100), range(80, 180))
    observed = streamed(*parts, iterators=(passed(samples=2000),))

    (finding,) = found(observed, alone(1000))

    assert finding.severity == "error"
    assert finding.message.endswith("an epoch has 2,000 samples, and 1,000 without workers")


def test_parts_of_a_long_stream_that_repeats_itself_are_only_suspected():
    first, second = ([number % 90 + start for number in range(100)] for start in (0, 60))
    observed = streamed(first, second, iterators=(passed(samples=2000),))

    assert found(observed, alone(1000))[0].severity == "info"


def test_draws_from_more_than_an_epoch_has_are_only_suspected():
    observed = streamed(range(100), range(80, 180), iterators=(passed(samples=300),))

    assert found(observed, alone(150))[0].severity == "info"


def test_a_map_style_dataset_is_another_matter():
    same = (*samples(range(10), worker=0), *samples(range(10), worker=1))

    assert not found(trial(samples=same))


def test_names_that_all_workers_yield_in_an_order_of_their_own_are_found():
    first, second = samples(range(10), worker=0), samples(range(100, 110), worker=1)
    named = [dataclasses.replace(each, parts=(each.digest, f"name {each.index}")) for each in first]
    turned = [dataclasses.replace(each, parts=(each.digest, f"name {9 - each.index}")) for each in second]
    observed = trial(STREAM, samples=(*named, *turned), iterators=(passed(samples=20),))

    assert found(observed, alone(10))[0].severity == "error"
