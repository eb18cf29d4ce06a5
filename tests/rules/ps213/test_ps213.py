"""PS213 copy-on-write-growth."""

from __future__ import annotations

from penstock._clinic.rules.limits.ps213_copy_on_write_growth import CopyOnWriteGrowth
from penstock._lab.record import Thing
from tests.rules.seen import GB, MB, facts, fetches, host, loader, trial, vitals, zero

RECORDS = Thing("dataset.records", "large-list", "list", count=400_000, nbytes=120 * MB)


def found(observed):
    return list(CopyOnWriteGrowth().check(facts(observed)))


def rising(_, number):
    return 10 * MB + number * MB


def test_workers_that_copy_a_large_list_are_found():
    observed = trial(loader(things=(RECORDS,)), fetches=fetches(60, uss=rising))

    (finding,) = found(observed)

    assert finding.severity == "warning"
    assert finding.message.startswith(
        "each worker of `train_loader` copies `dataset.records` (400,000 Python objects) as it reads it: "
    )
    assert finding.message.endswith(" MB so far, up to 240 MB more in 2 workers")
    assert finding.experiments[0].change.mends == ("pack-lists",)


def test_it_is_an_error_when_the_program_dies_of_it():
    observed = trial(
        loader(things=(RECORDS,)), outcome="oom", host=host(oom_kills=1), fetches=fetches(60, uss=rising)
    )

    (finding,) = found(observed)

    assert finding.severity == "error"
    assert finding.experiments[0].measure == "gone"


def test_copies_that_do_not_fit_are_foretold_where_the_program_is_killed_at_once():
    def ask(*, start_method="fork", needs=700):
        dying = trial(
            loader(things=(RECORDS,), start_method=start_method), outcome="oom", host=host(memory_limit=GB)
        )
        return list(CopyOnWriteGrowth().check(facts(dying, zero(vitals=vitals(tree_pss=needs * MB)))))

    (finding,) = ask()

    assert (finding.severity, finding.confidence) == ("error", "suspected")
    assert finding.message.endswith("as it reads it: up to 240 MB more in 2 workers")
    assert not ask(needs=300)  # there was room for them
    assert not ask(start_method="spawn")


def test_memory_that_is_level_after_warm_up_is_left_alone():
    observed = trial(
        loader(things=(RECORDS,)), fetches=fetches(60, uss=lambda _, number: min(number, 12) * 4 * MB)
    )

    assert not found(observed)


def test_memory_that_is_level_once_the_whole_list_has_been_copied_is_found():
    observed = trial(
        loader(things=(RECORDS,)), fetches=fetches(60, uss=lambda _, number: min(number, 12) * 10 * MB)
    )

    (finding,) = found(observed)

    assert "level: by then the lists have been copied" in finding.evidence[1].value


def test_a_short_list_is_left_alone():
    few = Thing("dataset.files", "large-list", "list", count=5_000)

    assert not found(trial(loader(things=(few,)), fetches=fetches(60, uss=rising)))


def test_growth_without_a_list_is_another_matter():
    assert not found(trial(fetches=fetches(60, uss=rising)))


def test_growth_of_a_few_megabytes_is_left_alone():
    observed = trial(
        loader(things=(RECORDS,)), fetches=fetches(60, uss=lambda _, number: 10 * MB + number * 65_536)
    )

    assert not found(observed)


def test_spawned_workers_have_their_own_copy_from_the_start():
    observed = trial(loader(things=(RECORDS,), start_method="spawn"), fetches=fetches(60, uss=rising))

    assert not found(observed)


def test_a_cache_that_fills_is_what_grows():
    observed = trial(
        loader(things=(RECORDS,)),
        fetches=fetches(60, uss=rising, caches=lambda _, number: {"dataset.cache": number}),
    )

    assert not found(observed)
