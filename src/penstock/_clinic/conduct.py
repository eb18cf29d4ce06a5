"""Carry out experiments: the trials that a finding asks for, and what they have shown.

Before and after differ by exactly one change, run under the same limits and on the same samples. A trial that
was run already stands for "before" when nothing distinguishes it; speeds are always compared in fresh trials,
A B A B, alone on the machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock._clinic import experiment as judge
from penstock._clinic.again import by_line
from penstock._clinic.finding import Evidence, Experiment, Finding, Proof
from penstock._clinic.pace import pace, work
from penstock._clinic.summary import unreached
from penstock._clinic.trials import Trials
from penstock._lab.plan import Change, Plan
from penstock._lab.record import Trial

# Seconds of batches in one trial.
LOADER_S = 6.0
SOON_S = 3.0
TIMED_S = 3.0
# Where epochs are compared that begin in another way, a trial should see more than one, unless they are long.
FEWEST_EPOCHS, LONGEST_S = 2.5, 12.0
# Batches of each worker, fewer of which tell no speed: where one takes long, a trial takes longer.
FEWEST_BATCHES = 3.5
# A first round of a comparison this far below what is asked for is not repeated.
HOPELESS = 0.75

RUNG_EPOCHS = 2

Fires = Callable[[Finding, Trial], bool]


@dataclass(slots=True)
class Bench:
    """Where experiments are done: the trials so far, the reference passes, and the rules to ask again."""

    trials: Trials
    observed: Trial
    fires: Fires  # does the rule of this finding still fire on that trial?
    references: dict[str, Trial] = field(default_factory=dict)  # by loader: the rung at num_workers=0
    cure: Change = field(default_factory=Change)  # what is in place already, when layers are peeled
    # By cause and loader: the experiment that made it go away, and its trial.
    cures: dict[tuple[str, str | None], tuple[Trial, Experiment]] = field(default_factory=dict)

    def test(self, finding: Finding) -> Finding:
        """The finding with the proof of its experiments: of the first that verifies, else what told most."""
        best = finding.proof
        for experiment in finding.experiments:
            proof = self.try_(finding, experiment)
            if _says_more(proof, best):
                best = proof
            if best.status == "verified":
                break
        return self._remedied(dataclasses.replace(finding, proof=best))

    def _remedied(self, finding: Finding) -> Finding:
        """The same with its remedy tried, where that is another change.

        Our own loader is tried once for each sick loader, by the exam: here only for want of a proof.
        """
        remedy = finding.remedy
        is_proved = finding.proof.status == "verified"
        if remedy is None or any(_is_same(remedy, each) for each in finding.experiments):
            return finding
        if is_proved and remedy.change.use_penstock:
            return finding
        proof = self.try_(finding, remedy)
        if proof.status != "verified":
            return _without_patch(finding) if remedy.change.patched and _failed(proof) else finding
        if not is_proved:
            return dataclasses.replace(finding, proof=proof)
        tried = Evidence("the remedy, tried", proof.experiment, "experiment")
        return dataclasses.replace(finding, evidence=(*finding.evidence, tried))

    def try_(self, finding: Finding, experiment: Experiment) -> Proof:
        """What one experiment shows about a finding."""
        if experiment.measure == "faster":
            return self._faster(finding, experiment)
        proof = Proof()
        for before, plan in self._befores(finding, experiment):
            known = self.trials.like(plan)
            after = known[-1] if known else self.trials.run(plan, f"experiment: {experiment.title}")
            if after is None:
                return _unsaid(experiment, proof)
            if after.impossible:
                return Proof("not-tested", f"{experiment.title}: {after.impossible}")
            proof = self._judged(finding, experiment, before, after)
            if proof.status != "not-tested":
                return proof
        return _unsaid(experiment, proof)

    def _befores(self, finding: Finding, experiment: Experiment) -> Iterator[tuple[Trial, Plan]]:
        """Trials without the change that show the ill, with the plan of the same trial with it."""
        for plan in self._plans(finding, experiment):
            before = self._before(finding, experiment, plan)
            if before is not None and self._shows(finding, experiment, before):
                yield before, plan.plus(experiment.change)

    def _plans(self, finding: Finding, experiment: Experiment) -> Iterator[Plan]:
        """How to run it: as the program does where that shows the ill already; else by our own loop."""
        is_plain = not experiment.base and experiment.epochs == 1 and experiment.max_batches is None
        if experiment.drive == "script" or (is_plain and self._shows(finding, experiment, self.observed)):
            yield self._scripted(finding, experiment)
        if experiment.drive == "loader":
            yield self._driven(finding, experiment)

    def _scripted(self, finding: Finding, experiment: Experiment) -> Plan:
        """The program as it runs, not much longer than it took to show the ill."""
        # Our loader takes the place of every one of torch's, as with `penstock run`.
        meant = None if experiment.change.use_penstock else made_at(finding.loader)
        plan = dataclasses.replace(self.observed.plan, loader=meant).plus(experiment.base)
        plan = dataclasses.replace(plan, epochs=max(plan.epochs, experiment.epochs))
        if plan.loader_s is None:
            return plan
        most_s = plan.loader_s + plan.late_s
        if finding.stopped_at_s is None:
            # Wrong data are wrong from the first epochs on.
            return dataclasses.replace(plan, min_s=min(plan.min_s, SOON_S)) if _is_silent(finding) else plan
        took = max(0.0, finding.stopped_at_s - self.trials.prepare_s)
        return dataclasses.replace(plan, loader_s=min(most_s, took + LOADER_S), late_s=0.0, min_s=0.0)

    def _driven(self, finding: Finding, experiment: Experiment) -> Plan:
        plan = Plan(
            drive="loader",
            loader=finding.loader or _only_loader(self.observed),
            is_early=any(each.key == finding.loader for each in unreached(self.observed)),
            max_batches=experiment.max_batches,
            epochs=experiment.epochs,
            loader_s=LOADER_S,
            max_s=self.observed.plan.max_s,
            short=self.observed.plan.short,
        )
        return plan.plus(self.cure).plus(experiment.base)

    def _before(self, finding: Finding, experiment: Experiment, plan: Plan) -> Trial | None:
        """A trial that was run already, if it shows the ill; else a new one."""
        known = self.trials.like(plan)
        if plan.drive == "script" and not experiment.base:
            known = [*known, self.observed]
        for trial in reversed(known):
            if self._shows(finding, experiment, trial):
                return trial
        if any(_went_as_far(trial, plan) for trial in known) and experiment.measure == "gone":
            return known[-1]  # it was asked, and does not show it: once more will not either
        return self.trials.run(plan, f"without the change: {experiment.title}")

    def _shows(self, finding: Finding, experiment: Experiment, trial: Trial) -> bool:
        """Whether a trial shows what the experiment is to make go away."""
        if experiment.measure == "same":
            reference = self.references.get(finding.loader or "")
            return (
                reference is not None
                and judge.wrong_samples(trial, reference, reference_key(finding)).wrong > 0
            )
        if experiment.measure == "smaller":
            return True
        if experiment.measure == "silent":
            return self.fires(finding, trial)
        return judge.ill(trial, finding.loader) is not None or self.fires(finding, trial)

    def _judged(self, finding: Finding, experiment: Experiment, before: Trial, after: Trial) -> Proof:
        title, key = experiment.title, finding.loader
        is_anothers = _is_silent(finding) and judge.stays(before, after, key)
        if experiment.measure == "same":
            proof = judge.same(
                title, before, after, self.references[reference_key(finding)], reference_key(finding)
            )
        elif experiment.measure == "smaller":
            proof = judge.smaller(experiment, before, after, key, finding.cause)
        elif experiment.measure == "silent" or is_anothers:
            return judge.silent(title, before, after, lambda trial: self.fires(finding, trial))
        else:
            proof = judge.gone(
                title,
                before,
                after,
                key,
                lambda trial: self.fires(finding, trial),
                brings=experiment.brings,
            )
        if proof.status == "verified":
            self.cures.setdefault((finding.cause, finding.loader), (after, experiment))
        return proof

    def _faster(self, finding: Finding, experiment: Experiment) -> Proof:
        """Compare speeds, A B A B; a pair of rungs of the ladder is the first round."""
        key = finding.loader or _only_loader(self.observed)
        if key is None:
            return Proof("not-tested", f"{experiment.title}: no loader was used")
        plan = self._timed(finding, experiment)
        rounds: list[tuple[Trial, Trial]] = []
        while len(rounds) < judge.ROUNDS and not _says_enough(rounds, experiment, key):
            before = None if rounds else self._rung(plan)
            known = before is not None and self._rung(before.plan.plus(experiment.change)) is not None
            if not self.trials.has_time(plan, times=2 - (before is not None) - known):
                return Proof("not-tested", f"{experiment.title}: no time was left to compare")
            pair = self._round(plan, experiment, before, len(rounds) + 1)
            if pair is None:
                break
            rounds.append(pair)
        return judge.faster(experiment, rounds, key)

    def _round(
        self, plan: Plan, experiment: Experiment, before: Trial | None, number: int
    ) -> tuple[Trial, Trial] | None:
        """One A and one B, alike in all but the change; in the first round both may be rungs."""
        turn = f"timing, round {number}"
        changed = (before.plan if before else plan).plus(experiment.change)
        known = self._rung(changed) if before else None
        before = before or self.trials.run(plan, f"{turn}: as it is")
        if before is None:
            return None
        after = known or self.trials.run(changed, f"{turn}: {experiment.title}")
        return None if after is None else (before, after)

    def _rung(self, plan: Plan) -> Trial | None:
        """A rung of the ladder like this plan; where speed is asked for, rungs were alone on the machine."""
        if plan.drive != "loader" or plan.epochs > RUNG_EPOCHS:
            return None
        return next((trial for trial in self.trials.like(plan) if trial.plan.digests), None)

    def _timed(self, finding: Finding, experiment: Experiment) -> Plan:
        plan = self._driven(finding, experiment)
        if experiment.drive == "script":
            plan = self._scripted(finding, experiment)
        long_s = self._epochs_s(plan, experiment.epochs)
        loader_s = max(timed_s(self.observed, plan.loader), long_s)
        return dataclasses.replace(plan, loader_s=loader_s, late_s=0.0, digests=False)

    def _epochs_s(self, plan: Plan, epochs: int) -> float:
        """What some epochs take, where what comes between them is to be timed; of long ones not all."""
        if epochs <= 1 or plan.drive != "loader" or plan.loader is None:
            return 0.0
        epoch_s = pace(by_line(self.observed), plan.loader).epoch_s
        return min(FEWEST_EPOCHS * epoch_s, LONGEST_S)


def timed_s(observed: Trial, key: str | None) -> float:
    """Seconds of batches that tell a loader's speed, and what its workers take to start before them."""
    if key is None:
        return TIMED_S
    own = by_line(observed)
    batches_s = max(TIMED_S, FEWEST_BATCHES * work(own, key).batch_s)
    return min(batches_s + pace(own, key).pass_start_s, LONGEST_S)


def _is_silent(finding: Finding) -> bool:
    """Whether it is about wrong data, which stop nothing."""
    return finding.code.startswith("PS3")


def _failed(proof: Proof) -> bool:
    """Whether a remedy was tried, and the program is still ill."""
    return proof.status == "refuted" or str(proof.after.get("outcome", "ok")) != "ok"


def _without_patch(finding: Finding) -> Finding:
    """The finding without a patch that does not help: what is to be done is said in words."""
    words = dataclasses.replace(finding.prescription, patch=None, fix=None)
    return dataclasses.replace(finding, prescription=words, remedy=None)


def made_at(key: str | None) -> str | None:
    """The line that makes a loader: what a change of the source would change, for every loader made there."""
    return None if key is None else key.rpartition("#")[0]


def reference_key(finding: Finding) -> str:
    """The loader whose reference pass counts."""
    return finding.loader or ""


def _only_loader(trial: Trial) -> str | None:
    return next((seen.loader for seen in trial.iterators), None) or next(
        (each.key for each in trial.loaders), None
    )


def _says_more(proof: Proof, best: Proof) -> bool:
    order = {"verified": 2, "refuted": 1, "not-tested": 0}
    return order[proof.status] > order[best.status] or (not best.experiment and bool(proof.experiment))


def _is_same(one: Experiment, other: Experiment) -> bool:
    return one.change == other.change and one.base == other.base and one.measure == other.measure


def _unsaid(experiment: Experiment, proof: Proof) -> Proof:
    if proof.experiment:
        return proof
    return Proof("not-tested", f"{experiment.title}: could not be tried")


def _went_as_far(trial: Trial, plan: Plan) -> bool:
    return trial.plan.epochs >= plan.epochs and (
        plan.max_batches is None or trial.plan.max_batches == plan.max_batches
    )


def _says_enough(rounds: list[tuple[Trial, Trial]], experiment: Experiment, key: str) -> bool:
    """Whether a first round says it all: nothing to gain, or more than any hiccup of a machine."""
    gain = _gain(rounds, key)
    return gain is not None and (gain < experiment.ratio * HOPELESS or gain >= judge.DECISIVE)


def _gain(rounds: list[tuple[Trial, Trial]], key: str) -> float | None:
    """By how much the change was faster in the first round; None where nobody knows."""
    was, now = judge.speeds(*rounds[0], key) if rounds else (None, None)
    return now / was if was and now else None
