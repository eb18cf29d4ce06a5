"""PS302 rng-repeated."""

from __future__ import annotations

from penstock._clinic.rules.data.ps302_rng_repeated import RngRepeated
from penstock._lab.record import DatasetSeen
from tests.rules.seen import facts, fetches, loader, samples, trial, zero

RANDOM = zero(samples=(*samples(range(20)), *samples(range(100, 120), iterator=1)))
SETTLED = zero(samples=(*samples(range(20)), *samples(range(20), iterator=1)))


def found(observed, *rungs):
    return list(RngRepeated().check(facts(observed, *(rungs or (RANDOM,)))))


def drawing(state, path="dataset.rng"):
    return lambda worker, number: {path: state(worker, number)}


def test_workers_that_begin_in_one_state_are_found():
    observed = trial(fetches=fetches(4, rngs=drawing(lambda _, number: f"state {number}")))

    (finding,) = found(observed)

    assert finding.severity == "error"
    assert finding.message == (
        "`dataset.rng` draws the same random numbers in workers 0, 1 of `train_loader`: every worker has a "
        "copy of it, and samples depend on it"
    )
    assert finding.experiments[0].change.mends == ("reseed-rng-objects",)
    assert finding.prescription.fix.arguments == {"path": "dataset.rng"}


def test_a_generator_on_the_collate_function_counts_though_samples_are_the_same():
    observed = trial(fetches=fetches(4, rngs=drawing(lambda _, number: f"{number}", "collate_fn.generator")))

    (finding,) = found(observed, SETTLED)

    assert finding.where == observed.loaders[0].site
    assert not any("read again" in each.fact for each in finding.evidence)
    assert not found(trial(fetches=fetches(4, rngs=drawing(lambda _, number: f"{number}"))), SETTLED)


def test_epochs_that_begin_in_one_state_are_found():
    own = drawing(lambda worker, number: f"{worker} {number}")
    observed = trial(fetches=(*fetches(4, rngs=own), *fetches(4, iterator=1, rngs=own)))

    (finding,) = found(observed)

    assert finding.severity == "warning"
    assert "the same random numbers in every epoch" in finding.message
    assert finding.experiments[0].epochs == 2


def test_a_global_generator_that_every_worker_seeds_alike_is_found():
    observed = trial(fetches=fetches(4, rngs=drawing(lambda _, number: f"{number}", "numpy.random")))

    (finding,) = found(observed)

    assert "every worker seeds it alike" in finding.message
    assert "worker_init_fn" in finding.prescription.change
    assert finding.experiments[0].change.settings == {"worker_init_fn": None}


def test_generators_seeded_in_each_worker_and_epoch_are_left_alone():
    first = fetches(4, rngs=drawing(lambda worker, number: f"{worker} {number}"))
    second = fetches(4, iterator=1, rngs=drawing(lambda worker, number: f"next {worker} {number}"))

    assert not found(trial(fetches=(*first, *second)))


def test_a_generator_that_nobody_draws_from_is_left_alone():
    assert not found(trial(fetches=fetches(4, rngs=drawing(lambda *_: "still"))))


def test_a_permutation_that_all_workers_share_is_left_alone():
    shared = drawing(lambda _, number: "before" if number == 0 else "after")

    assert not found(trial(fetches=fetches(6, rngs=shared)))


def test_samples_that_do_not_depend_on_chance_are_left_alone():
    observed = trial(
        fetches=fetches(4, rngs=drawing(lambda _, number: f"{number}")), samples=samples(range(20), worker=0)
    )

    assert not found(observed, SETTLED)


def test_persistent_workers_that_go_on_drawing_are_left_alone():
    first = fetches(4, workers=1, rngs=drawing(lambda _, number: f"{number}"))
    second = fetches(4, workers=1, iterator=1, rngs=drawing(lambda _, number: f"{number + 4}"))

    assert not found(trial(fetches=(*first, *second)))


def test_passes_of_one_batch_add_up_in_workers_that_are_kept():
    passes = [
        each
        for number in range(4)
        for each in fetches(1, iterator=number, rngs=drawing(lambda *_, number=number: f"{number}"))
    ]
    kept = loader(persistent_workers=True)

    assert found(trial(kept, fetches=tuple(passes)))
    assert not found(trial(kept, fetches=tuple(passes[:2])))
    assert not found(trial(fetches=tuple(passes)))


def test_a_stream_whose_order_alone_is_left_to_chance_is_left_alone():
    stream = loader(dataset=DatasetSeen(type="Lines", is_iterable=True))
    drawn = fetches(4, rngs=drawing(lambda _, number: f"{number}"))
    observed = trial(stream, fetches=drawn, samples=samples(range(20), worker=0))
    shuffled = zero(loaders=(stream,), samples=samples(range(19, -1, -1)))
    random = zero(loaders=(stream,), samples=samples(range(100, 120)))

    assert not found(observed, shuffled)
    assert found(observed, random)
