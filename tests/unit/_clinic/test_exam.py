"""The order in which an exam goes, with a lab and rules made up for the purpose."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from penstock._clinic.causes import CODES
from penstock._clinic.exam import LAYERS, Practice, examine, is_roomy
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.settings import Options
from penstock._clinic.source import Source, read_text
from penstock._lab.plan import Change
from penstock._lab.record import Failure, HostSeen, IteratorSeen, LoaderSeen, SampleSeen, Site, Trial

KEY = "train.py:9#0"
SPAWN = Change(settings={"multiprocessing_context": "spawn"})
LOADER = LoaderSeen(KEY, Site("train.py", 9), "loader", {"num_workers": 2, "batch_size": 4}, length=10)
QUICKLY = Options(timeout=30.0)
NO_SOURCE = Source()


def passed(batches=10, wait=0.001, **fields):
    waits = (wait,) * batches
    return IteratorSeen(
        KEY, batches=batches, samples=4 * batches, waits=waits, steps=(0.01,) * batches, **fields
    )


WELL = Trial(loaders=(LOADER,), iterators=(passed(),), status=0)
HUNG = Trial(loaders=(LOADER,), iterators=(passed(3),), outcome="hang", ended_by="stall")


def raised(name="ValueError", batches=2):
    failure = Failure(name, "bad", phase="sample", loader=KEY, index=7, is_fatal=True)
    return Trial(
        loaders=(LOADER,), iterators=(passed(batches),), outcome="error", status=1, failures=(failure,)
    )


class Lab:
    """Answers each plan with what a program of this kind would show, and keeps the plans."""

    def __init__(self, answer):
        self.answer, self.plans = answer, []

    def run(self, target, plan, *, stop):
        self.plans.append(plan)
        trial = self.answer(plan)
        return dataclasses.replace(trial, plan=plan)

    @property
    def driven(self):
        return [(plan.drive, plan.change.settings.get("num_workers")) for plan in self.plans]


class Rule:
    """Makes one finding wherever `fires` says so."""

    def __init__(self, cause, fires, *, needs=("observed",), **fields):
        self.code, self.cause, self.needs = CODES[cause], cause, frozenset(needs)
        self.fires, self.fields = fires, fields

    def check(self, facts):
        if not self.fires(facts):
            return
        base = {"evidence": (Evidence("f", "v", "observed run"),), "severity": "error", "loader": KEY}
        base["prescription"] = Prescription("change", "expect")
        yield Finding(self.code, self.cause, message=self.cause, **{**base, **self.fields})


def exam(answer, rules=(), options=QUICKLY, source=NO_SOURCE, say=lambda sentence: None):
    lab = Lab(answer)
    practice = Practice(lab.run, rules, lambda target: source)
    return examine("train.py", options=options, practice=practice, say=say), lab


def always(facts):
    return True


def is_hung(facts):
    return facts.observed.outcome == "hang"


def changed(plan, name):
    return plan.change.settings.get(name)


def test_a_healthy_program_takes_two_trials():
    report, lab = exam(lambda plan: WELL)
    assert (report.verdict, report.exit_status, report.findings) == ("healthy", 0, ())
    assert lab.driven == [("script", None), ("loader", 0)]
    assert [(rung.num_workers, rung.outcome) for rung in report.ladder] == [(0, "ok"), (2, "ok")]


def test_no_trial_of_an_exam_goes_on_beyond_its_end_however_busy_the_machine_is():
    _, lab = exam(lambda plan: WELL)
    assert all(0.0 <= plan.extra_s <= QUICKLY.timeout - plan.max_s for plan in lab.plans)


def test_a_program_that_ends_before_any_loader_could_not_be_run():
    report, lab = exam(lambda plan: Trial(status=0))
    assert (report.verdict, report.exit_status, report.reason.code) == ("could-not-run", 2, "PS902")
    assert len(lab.plans) == 1


def test_a_lab_that_fails_is_told_and_stops_nothing():
    def broken(plan):
        raise OSError("no more processes")

    report, _ = exam(broken)
    assert (report.verdict, report.reason.code) == ("could-not-run", "PS920")
    assert "no more processes" in report.reason.why


def test_a_rule_that_raises_is_noted():
    def fails(facts):
        raise KeyError("oops")

    report, _ = exam(lambda plan: WELL, [Rule("bad-sample", fails)])
    assert report.verdict == "healthy"
    assert any("PS802" in note and "oops" in note for note in report.notes)


def test_an_experiment_or_a_patch_that_fails_is_noted(monkeypatch):
    lock = Rule(
        "lock-held-at-fork", is_hung, experiments=(Experiment("under spawn", SPAWN),), stopped_at_s=4.0
    )

    def fails(*arguments):
        raise AssertionError

    monkeypatch.setattr("penstock._clinic.exam.prescribed", fails)
    monkeypatch.setattr("penstock._clinic.conduct.Bench.test", fails)
    report, _ = exam(lambda plan: WELL if changed(plan, "num_workers") == 0 else HUNG, [lock])

    assert [finding.cause for finding in report.findings] == ["lock-held-at-fork"]
    assert {
        "the patch of PS111 failed: AssertionError: ",
        "the experiments of PS111 failed: AssertionError: ",
    } <= {*report.notes}


def test_a_rule_is_asked_only_when_its_facts_are_at_hand():
    report, _ = exam(lambda plan: WELL, [Rule("bad-sample", always, needs=("timings",))])
    assert report.findings == ()


def test_an_experiment_verifies_a_hang_on_the_program_itself():
    lock = Rule(
        "lock-held-at-fork", is_hung, experiments=(Experiment("under spawn", SPAWN),), stopped_at_s=4.0
    )

    def answer(plan):
        is_cured = changed(plan, "multiprocessing_context") or changed(plan, "num_workers") == 0
        return WELL if is_cured or plan.change.use_penstock else HUNG

    report, lab = exam(answer, [lock])
    (finding,) = report.findings
    assert report.verdict == "sick"
    assert (finding.proof.status, finding.confidence) == ("verified", "proved")
    assert (finding.proof.before["outcome"], finding.proof.after["outcome"]) == ("hang", "ok")
    assert finding.cured_by_penstock is True
    # Observed, reference, experiment, our loader: the observed run is the other side of the experiment.
    assert [plan.drive for plan in lab.plans] == ["script", "loader", "script", "script"]


def test_a_suspicion_that_is_refuted_is_dropped_and_said():
    guess = Rule(
        "thread-pool-after-fork",
        is_hung,
        confidence="suspected",
        experiments=(Experiment("under spawn", SPAWN),),
    )
    report, _ = exam(lambda plan: WELL if changed(plan, "num_workers") == 0 else HUNG, [guess])
    assert report.findings == ()
    assert [finding.cause for finding in report.refuted] == ["thread-pool-after-fork"]
    assert (report.verdict, report.reason.code) == ("could-not-run", "PS922")


def test_an_observation_that_is_refuted_stays_with_less_confidence():
    seen = Rule("blocking-io", is_hung, experiments=(Experiment("under spawn", SPAWN),), stopped_at_s=3.0)
    report, _ = exam(lambda plan: WELL if changed(plan, "num_workers") == 0 else HUNG, [seen])
    (finding,) = report.findings
    assert (finding.severity, finding.confidence, finding.proof.status) == ("error", "suspected", "refuted")


def test_what_the_source_alone_says_is_an_info_and_costs_no_trial():
    read = Rule(
        "lock-held-at-fork",
        always,
        evidence=(Evidence("a thread", "line 3", "source"),),
        experiments=(Experiment("under spawn", SPAWN),),
    )
    report, lab = exam(lambda plan: WELL, [read])
    assert (report.verdict, report.findings[0].severity) == ("healthy", "info")
    assert len(lab.plans) == 2


@pytest.mark.parametrize(("ours", "cured"), [(WELL, [True, True]), (raised(batches=5), [True, False])])
def test_what_the_first_illness_hid_is_found_behind_it(ours, cured):
    spawn_cures = Experiment("under spawn", SPAWN)
    clone = Experiment("samples cloned", Change(mends=("clone",)))
    first = Rule("lock-held-at-fork", is_hung, experiments=(spawn_cures,), stopped_at_s=4.0)
    second = Rule(
        "bad-sample", lambda facts: bool(facts.observed.failures), experiments=(clone,), stopped_at_s=2.0
    )

    def answer(plan):
        if changed(plan, "num_workers") == 0 or plan.change.use_penstock:
            return ours if plan.change.use_penstock else WELL
        if not changed(plan, "multiprocessing_context"):
            return HUNG
        return WELL if plan.change.mends else raised(batches=5)

    report, _ = exam(answer, [second, first])
    assert [finding.cause for finding in report.findings] == ["lock-held-at-fork", "bad-sample"]
    assert [finding.proof.status for finding in report.findings] == ["verified", "verified"]
    assert [finding.cured_by_penstock for finding in report.findings] == cured


@pytest.mark.parametrize(
    ("hidden", "told"), [("handle-shared-across-fork", []), ("bad-sample", ["bad-sample"])]
)
def test_what_comes_with_a_fork_that_the_program_has_not_is_no_illness_of_it(hidden, told):
    fork = Experiment("under fork", Change(settings={"multiprocessing_context": "fork"}))

    def is_refused(facts):
        return facts.observed.outcome == "error"

    first = Rule("unpicklable-dataset", is_refused, experiments=(fork,), stopped_at_s=1.0)
    second = Rule(hidden, lambda facts: not is_refused(facts))

    def answer(plan):
        is_well = changed(plan, "num_workers") == 0 or changed(plan, "multiprocessing_context")
        return WELL if is_well else raised("TypeError", batches=0)

    report, _ = exam(answer, [first, second])

    assert [finding.cause for finding in report.findings] == ["unpicklable-dataset", *told]


def test_what_the_source_was_suspected_of_is_told_as_seen_once_it_is_seen_behind_another_illness():
    fork = Experiment("under fork", Change(settings={"multiprocessing_context": "fork"}))

    def is_refused(facts):
        return facts.observed.outcome == "error"

    written = (Evidence("made before workers start", "line 3", "source"),)
    first = Rule("unpicklable-dataset", is_refused, experiments=(fork,), stopped_at_s=1.0)
    suspected = Rule("rng-repeated", is_refused, evidence=written)
    seen = Rule("rng-repeated", lambda facts: not is_refused(facts))

    def answer(plan):
        is_well = changed(plan, "num_workers") == 0 or changed(plan, "multiprocessing_context")
        return WELL if is_well else raised("TypeError", batches=0)

    report, _ = exam(answer, [first, suspected, seen])

    told = [(finding.cause, finding.severity) for finding in report.findings]
    assert told == [("unpicklable-dataset", "error"), ("rng-repeated", "error")]


def test_peeling_ends():
    causes = ["lock-held-at-fork", "bad-sample", "dataset-raises", "worker-exited", "wrong-length"]

    def layer_of(trial):
        return len(trial.plan.change.mends)

    def answer(plan):
        if plan.drive == "loader":
            return WELL
        return raised(f"Error{len(plan.change.mends)}", batches=2 + len(plan.change.mends))

    rules = [
        Rule(
            cause,
            lambda facts, depth=depth: layer_of(facts.observed) == depth,
            experiments=(Experiment("mended", Change(mends=(f"m{depth}",))),),
            stopped_at_s=1.0,
        )
        for depth, cause in enumerate(causes)
    ]
    report, _ = exam(answer, rules)
    assert [finding.cause for finding in report.findings] == causes[:LAYERS]


SLOW = Trial(loaders=(LOADER,), iterators=(passed(wait=0.4),), status=0, host=HostSeen(cpus=2))


def slow_rule(gain):
    timed = Experiment("with 4 workers", Change(settings={"num_workers": 4}), "faster")
    rule = Rule("too-few-workers", always, severity="warning", experiments=(timed,))

    def answer(plan):
        is_faster = changed(plan, "num_workers") == 4
        return dataclasses.replace(SLOW, iterators=(passed(wait=0.4 / gain if is_faster else 0.4),))

    return rule, answer


def test_slowness_is_a_warning_when_the_gain_was_measured():
    rule, answer = slow_rule(gain=2.0)
    report, lab = exam(answer, [rule], dataclasses.replace(QUICKLY, timeout=120.0))
    (finding,) = report.findings
    assert (report.verdict, finding.severity, finding.proof.status) == ("sick", "warning", "verified")
    assert finding.proof.after["gain"] == pytest.approx(2.0, rel=0.1)
    # The rung with the program's own number is the first A of A B A B; the last is with our own loader.
    tried = [(plan.digests, changed(plan, "num_workers")) for plan in lab.plans]
    assert tried[2:] == [(True, 2), (True, 4), (False, None), (False, 4), (True, None)]


def test_slowness_without_enough_gain_is_an_info():
    rule, answer = slow_rule(gain=1.2)
    report, _ = exam(answer, [rule], dataclasses.replace(QUICKLY, timeout=120.0))
    assert (report.verdict, report.findings[0].severity) == ("healthy", "info")


def test_a_program_that_was_stopped_is_not_timed():
    rule, _ = slow_rule(gain=2.0)
    report, _ = exam(lambda plan: HUNG, [rule])
    assert report.findings == ()


def test_without_experiments_nothing_but_the_ladder_is_run():
    lock = Rule(
        "lock-held-at-fork", is_hung, experiments=(Experiment("under spawn", SPAWN),), stopped_at_s=4.0
    )
    options = dataclasses.replace(QUICKLY, experiments=False)
    report, lab = exam(lambda plan: WELL if changed(plan, "num_workers") == 0 else HUNG, [lock], options)
    assert (report.verdict, report.findings[0].proof.status) == ("sick", "not-tested")
    assert len(lab.plans) == 2


def test_no_trial_is_begun_without_time():
    lock = Rule(
        "lock-held-at-fork", is_hung, experiments=(Experiment("under spawn", SPAWN),), stopped_at_s=4.0
    )
    late = dataclasses.replace(HUNG, iterators=(passed(3, began_s=500.0),))
    report, lab = exam(lambda plan: late, [lock])
    assert len(lab.plans) == 1
    assert any("lack of time" in note for note in report.notes)
    assert report.verdict == "sick"


def test_codes_that_are_not_selected_are_not_asked_for():
    options = dataclasses.replace(QUICKLY, ignore=("PS111",))
    report, _ = exam(lambda plan: HUNG, [Rule("lock-held-at-fork", is_hung)], options)
    assert report.findings == ()


def test_a_comment_in_the_source_silences_its_line():
    source = read_text("a = 1\nb = 2  # penstock: ignore[PS802]\n", "train.py")
    rule = Rule("bad-sample", always, where=Site("train.py", 2))
    report, _ = exam(lambda plan: WELL, [rule], source=source)
    assert report.findings == ()


def test_a_file_may_be_left_out_by_name():
    options = dataclasses.replace(QUICKLY, per_file_ignores={"train.py": ("PS8",)})
    rule = Rule("bad-sample", always, where=Site("/home/me/train.py", 2))
    report, _ = exam(lambda plan: WELL, [rule], options)
    assert report.findings == ()


def test_a_limit_of_the_machine_is_followed_down_the_ladder():
    full = Rule("shm-exhausted", lambda facts: facts.observed.outcome == "error", stopped_at_s=3.0)

    def answer(plan):
        workers = changed(plan, "num_workers")
        return WELL if workers in {0, 1} else raised("RuntimeError")

    report, _ = exam(answer, [full])
    assert [(rung.num_workers, rung.outcome) for rung in report.ladder] == [
        (0, "ok"),
        (1, "ok"),
        (2, "error"),
    ]
    assert report.ladder[-1].detail == "RuntimeError: bad (sample 7)"


def test_samples_that_are_wrong_with_workers_are_compared_with_the_reference():
    def with_digest(digest):
        return dataclasses.replace(WELL, samples=(SampleSeen(KEY, index=0, digest=digest),))

    reopen = Experiment("reopened in each worker", Change(mends=("reopen",)), "same")
    rule = Rule("handle-shared-across-fork", always, experiments=(reopen,))
    report, _ = exam(
        lambda plan: with_digest("a" if plan.change.mends or changed(plan, "num_workers") == 0 else "b"),
        [rule],
    )
    assert report.findings[0].proof.status == "verified"
    assert report.findings[0].proof.before == {"wrong": 1, "samples": 1}


def test_every_step_is_said():
    said = []
    exam(lambda plan: WELL, say=said.append)
    assert said == ["observed run: train.py as it is", "ladder: train.py:9 with num_workers=0"]


def test_two_trials_at_a_time_need_room():
    roomy = HostSeen(cpus=2, shm_size=8 << 30, shm_free=8 << 30, memory_limit=16 << 30)
    assert is_roomy(roomy)
    assert not is_roomy(dataclasses.replace(roomy, shm_free=64 << 20))
    assert not is_roomy(dataclasses.replace(roomy, memory_limit=1 << 30))
    assert not is_roomy(dataclasses.replace(roomy, cpus=1))


def test_our_loader_is_tried_beside_the_experiments_where_there_is_room():
    tried, meeting = [], threading.Event()
    roomy = HostSeen(cpus=2, shm_size=8 << 30, shm_free=8 << 30, memory_limit=16 << 30)

    def answer(plan):
        if plan.change.use_penstock:
            tried.append(meeting.wait(10.0))  # until the experiment runs
        if changed(plan, "multiprocessing_context"):
            meeting.set()
        is_cured = plan.drive == "loader" or plan.change.settings or plan.change.use_penstock
        return dataclasses.replace(WELL if is_cured else HUNG, host=roomy)

    rule = Rule("lock-held-at-fork", is_hung, experiments=(Experiment("under spawn", SPAWN),))
    report, _ = exam(answer, [rule])

    assert tried == [True]
    assert report.findings[0].cured_by_penstock is True


def test_an_exam_that_is_interrupted_stops_what_runs_beside_it():
    stopped = []
    roomy = HostSeen(cpus=2, shm_size=8 << 30, shm_free=8 << 30, memory_limit=16 << 30)

    class Interrupted(Lab):
        def run(self, target, plan, *, stop):
            if plan.change.use_penstock:
                stopped.append(stop.wait(10.0))
            elif plan.drive == "loader":
                raise KeyboardInterrupt
            return super().run(target, plan, stop=stop)

    lab = Interrupted(lambda plan: dataclasses.replace(HUNG, host=roomy))
    practice = Practice(lab.run, (), lambda target: NO_SOURCE)
    with pytest.raises(KeyboardInterrupt):
        examine("train.py", options=QUICKLY, practice=practice, say=lambda sentence: None)

    assert stopped == [True]


@pytest.mark.parametrize(("patched", "is_kept"), [(WELL, True), (HUNG, False)])
def test_a_patch_that_was_tried_and_does_not_help_is_not_prescribed(patched, is_kept):
    def answer(plan):
        if plan.change.patched:
            return patched
        return WELL if plan.drive == "loader" or changed(plan, "multiprocessing_context") else HUNG

    rule = Rule(
        "lock-held-at-fork",
        is_hung,
        experiments=(Experiment("spawn", SPAWN),),
        remedy=Experiment("the program with this patch", Change(patched={"train.py": "new"}), drive="script"),
        prescription=Prescription("open it lazily", "it goes on", patch="--- a\n+++ b\n"),
    )

    report, _ = exam(answer, [rule], Options(timeout=120.0))
    (finding,) = report.findings
    assert finding.proof.status == "verified"
    assert (finding.prescription.patch is not None) is is_kept


@pytest.mark.parametrize(("name", "is_cured"), [("ValueError", True), ("KeyError", False)])
def test_our_loader_cures_a_hang_when_it_raises_what_the_program_raises_without_workers(name, is_cured):
    def answer(plan):
        if plan.change.use_penstock:
            return raised(name, batches=1)
        return raised() if changed(plan, "num_workers") == 0 else HUNG

    report, _ = exam(answer, [Rule("exception-not-picklable", is_hung)])
    assert report.findings[0].cured_by_penstock is is_cured


def test_a_loader_that_the_program_did_not_come_to_is_looked_at_ahead():
    other = "train.py:10#0"
    val = dataclasses.replace(LOADER, key=other, is_beforehand=True)
    later = dataclasses.replace(LOADER, key="train.py:30#0")
    observed = dataclasses.replace(WELL, loaders=(LOADER, val, val, later), ended_by="enough")
    failure = Failure("ValueError", "bad", phase="sample", loader=other, index=7, is_fatal=True)

    def answer(plan):
        if plan.loader != other:
            return observed
        return dataclasses.replace(raised(), loaders=(val,), iterators=(), failures=(failure,))

    report, lab = exam(answer)
    early = [(plan.loader, plan.change.settings) for plan in lab.plans if plan.is_early]

    assert early == [(other, {"num_workers": 2})]
    assert [rung.outcome for rung in report.ladder if rung.loader == other] == ["error"]

    _, lab = exam(lambda plan: dataclasses.replace(observed, ended_by="itself"))

    assert not any(plan.is_early for plan in lab.plans)  # it has ended without that loader


@pytest.mark.parametrize(
    ("ended_by", "passes", "is_run"),
    [("enough", 1, True), ("itself", 1, False), ("enough", 2, False)],
)
def test_a_program_that_was_not_seen_beyond_its_first_epoch_runs_once_more_with_short_ones(
    ended_by, passes, is_run
):
    seen = tuple(passed(number=number) for number in range(passes))
    cut = dataclasses.replace(WELL, iterators=seen, ended_by=ended_by)
    is_short = Rule("stale-dataset-in-workers", lambda facts: facts.observed.plan.short is not None)
    counts = Rule("wrong-length", lambda facts: facts.observed.plan.short is not None)

    report, lab = exam(lambda plan: cut, [is_short, counts])

    assert any(plan.short for plan in lab.plans) == is_run
    # A pass that was cut short tells nothing of lengths.
    assert [each.cause for each in report.findings] == (["stale-dataset-in-workers"] if is_run else [])
