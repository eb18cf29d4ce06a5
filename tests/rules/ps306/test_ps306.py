"""PS306 sample-mutated-in-place."""

from __future__ import annotations

from dataclasses import replace

from penstock._clinic.rules.data.ps306_sample_mutated_in_place import SampleMutatedInPlace
from penstock._lab.record import DatasetSeen, Thing
from tests.rules.seen import facts, fetches, loader, samples, trial, zero

DRIFTING = (*samples(range(10)), *samples(range(50, 60), iterator=1))
STILL = (*samples(range(10)), *samples(range(10), iterator=1))
CHANGED = loader(dataset=DatasetSeen(type="Pictures", length=10, mutated=("dataset.data",)))


def found(observed, *rungs):
    return list(SampleMutatedInPlace().check(facts(observed, *rungs)))


def test_samples_that_drift_are_found():
    (finding,) = found(trial(samples=samples(range(10), worker=0)), zero(samples=DRIFTING))

    assert finding.severity == "warning"
    assert finding.message == (
        "`Pictures` of `train_loader` changes its stored samples as it returns samples: 10 of 10 samples "
        "have another content in the second epoch, at num_workers=0, and with persistent workers"
    )
    assert finding.experiments[0].base.settings == {"num_workers": 0}
    assert finding.experiments[0].epochs == 2
    assert finding.prescription.fix.name == "clone-sample"


def test_it_is_an_error_when_the_programs_own_epochs_drift():
    (finding,) = found(trial(samples=DRIFTING), zero(samples=DRIFTING))

    assert finding.severity == "error"


def test_data_that_every_process_makes_anew_is_no_excuse_when_it_is_seen_to_change():
    (finding,) = found(
        trial(samples=samples(range(500, 510), worker=0)), zero(loaders=(CHANGED,), samples=DRIFTING)
    )

    assert "`dataset.data`" in finding.message
    assert finding.prescription.fix.arguments == {"attribute": "data"}


def test_random_samples_are_left_alone():
    elsewhere = trial(samples=samples(range(500, 510), worker=0))

    assert not found(elsewhere, zero(samples=DRIFTING))


def test_seeded_random_samples_are_left_alone():
    drawn = fetches(4, workers=1, rngs=lambda _, number: {"torch": f"{number}"})
    drawn = tuple(zero(fetches=drawn).fetches)
    rung = zero(samples=DRIFTING, fetches=drawn)

    assert not found(trial(samples=samples(range(10), worker=0)), rung)


def test_a_field_that_chance_leaves_alone_tells_of_samples_that_are_hidden_by_chance():
    def made(start, *targets, worker=-1):
        """Samples with a random content and a target, pass by pass."""
        return tuple(
            replace(each, parts=(each.digest, f"target {place + target}"))
            for number, target in enumerate(targets)
            for place, each in enumerate(samples(range(start, start + 10), iterator=number, worker=worker))
        )

    elsewhere = trial(samples=made(500, 0, worker=0))

    assert found(elsewhere, zero(loaders=(CHANGED,), samples=made(0, 0, 100)))
    assert not found(elsewhere, zero(loaders=(CHANGED,), samples=made(0, 50, 100)))
    assert not found(elsewhere, zero(loaders=(CHANGED,), samples=made(0, 0, 0)))
    assert not found(elsewhere, zero(samples=made(0, 0, 100)))
    seeded = trial(samples=made(0, 0))
    assert not found(seeded, zero(loaders=(CHANGED,), samples=made(0, 0, 100)))


def test_random_samples_are_no_excuse_when_several_stored_ones_are_seen_to_change():
    drawn = fetches(4, workers=1, rngs=lambda _, number: {"torch": f"{number}"})
    drawn = tuple(zero(fetches=drawn).fetches)
    elsewhere = trial(samples=samples(range(500, 510), worker=0))

    def changed(*paths):
        seen = loader(dataset=DatasetSeen(type="Pictures", length=10, mutated=paths))
        return zero(loaders=(seen,), samples=DRIFTING, fetches=drawn)

    assert found(elsewhere, changed("dataset.data[0]", "dataset.data[1]", "dataset.data[2]"))
    assert found(elsewhere, changed(*(f"dataset.items[{each}]['boxes']" for each in range(3))))
    assert not found(elsewhere, changed("dataset.mean", "dataset.count"))


def test_seeded_samples_that_fresh_workers_repeat_are_found():
    drawn = fetches(4, workers=1, rngs=lambda _, number: {"torch": f"{number}"})

    assert found(trial(samples=STILL), zero(samples=DRIFTING, fetches=drawn))


def test_an_epoch_too_long_for_a_second_pass_is_judged_by_a_sample_made_twice():
    def once(*, drifts, **more):
        seen = loader(
            dataset=DatasetSeen(type="Pictures", length=10, mutated=("dataset.data",), drifts=drifts), **more
        )
        return zero(loaders=(seen,), samples=samples(range(10)))

    elsewhere = trial(samples=samples(range(10), worker=0))
    (finding,) = found(elsewhere, once(drifts=True))

    assert "a sample that is made twice from the same seeds has another content" in finding.message
    assert not found(elsewhere, once(drifts=False))
    assert not found(elsewhere, once(drifts=True, things=(Thing("dataset.rng", "rng", "Generator"),)))


def test_a_dataset_that_gives_the_same_again_is_left_alone():
    assert not found(trial(samples=STILL), zero(samples=STILL))


def test_an_epoch_that_the_program_sets_is_left_alone():
    assert not found(trial(samples=DRIFTING), zero(samples=STILL))


def test_a_sampler_that_draws_between_two_passes_is_no_chance_in_the_samples():
    first = fetches(4, workers=1, rngs={"torch": "one"})
    drawn = (*first, *fetches(4, workers=1, iterator=1, rngs={"torch": "two"}))

    assert found(trial(samples=samples(range(10), worker=0)), zero(samples=DRIFTING, fetches=drawn))


def test_samples_of_passes_of_one_batch_may_be_drawn_by_chance():
    def rung(*states, dataset=CHANGED.dataset):
        drawn = [fetches(1, workers=1, iterator=at, rngs={"torch": each}) for at, each in enumerate(states)]
        return zero(loaders=(loader(dataset=dataset),), samples=DRIFTING, fetches=(*drawn[0], *drawn[1]))

    elsewhere = trial(samples=samples(range(10), worker=0))

    assert not found(elsewhere, rung("one", "two"))
    assert found(elsewhere, rung("one", "one"))
    assert found(elsewhere, rung("one", "two", dataset=replace(CHANGED.dataset, drifts=True)))


def test_an_experiment_without_workers_is_judged_by_itself():
    mended = zero(samples=STILL)

    assert not found(mended, zero(samples=DRIFTING))
