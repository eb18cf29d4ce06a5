"""PS203 map-count-exhausted."""

from __future__ import annotations

from penstock._clinic.rules.limits.ps203_map_count_exhausted import MapCountExhausted
from tests.rules.seen import facts, failure, host, loader, passed, trial, vitals

TEXT = "unable to mmap 4 bytes from file </torch_9_1_64>: Cannot allocate memory (12)"


def found(observed):
    return list(MapCountExhausted().check(facts(observed)))


def test_maps_that_ran_out_are_found():
    observed = trial(
        loader(strategy="file_system"),
        outcome="error",
        failures=(failure(TEXT),),
        iterators=(passed(batches=200, kept=198, tensors_per_batch=320, end="raised"),),
        vitals=vitals(main_maps=lambda batch: 400 + 1_600 * batch),
    )

    (finding,) = found(observed)

    assert finding.severity == "error"
    assert finding.message == (
        "`train_loader` fails at the limit of 65,530 memory maps: each tensor from a worker is one, of which "
        "the program keeps 198 batches"
    )
    assert finding.experiments[0].change.mends == ("drop-kept",)
    assert finding.evidence[-1].value == "file_system"


def test_maps_that_ran_out_between_two_looks_are_told_by_the_process_itself():
    observed = trial(
        loader(strategy="file_system"),
        outcome="error",
        failures=(failure(TEXT, maps=65_488),),
        vitals=vitals(main_maps=30_000),
    )

    (finding,) = found(observed)

    assert finding.evidence[1].value == "65,488 at most, of 65,530"


def test_an_epoch_that_leads_past_the_limit_is_foretold():
    observed = trial(
        loader(length=3_125, strategy="file_system"),
        iterators=(passed(batches=40, kept=38, tensors_per_batch=320, end="open"),),
        vitals=vitals(main_maps=lambda batch: 400 + 320 * batch, main_fds=30),
    )

    (finding,) = found(observed)

    assert finding.severity == "warning"
    assert "320 memory maps: 1,000,000 by the end" in finding.message


def test_descriptors_that_run_out_first_are_told_instead():
    observed = trial(
        loader(length=3_125),
        host=host(nofile=1024),
        iterators=(passed(batches=40, kept=38, tensors_per_batch=320, end="open"),),
        vitals=vitals(main_maps=lambda batch: 400 + 320 * batch, main_fds=lambda batch: 20 + 320 * batch),
    )

    assert not found(observed)


def test_memory_that_ran_out_with_few_maps_is_another_matter():
    assert not found(trial(outcome="error", failures=(failure(TEXT),), vitals=vitals(main_maps=420)))


def test_maps_that_do_not_rise_are_left_alone():
    observed = trial(
        loader(length=3_125, strategy="file_system"),
        iterators=(passed(batches=40, kept=38, tensors_per_batch=320, end="open"),),
        vitals=vitals(main_maps=420),
    )

    assert not found(observed)
