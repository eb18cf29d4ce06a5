"""From a target to a report: the order in which an exam goes.

    source ─┐
    observed run ──▶ ladder ──▶ rules ──▶ experiments ──▶ peel ──▶ our loader ──▶ Report
                       ▲                       │            │
                       └── one budget of time ─┴────────────┘

1. The program runs as it is, watched. A program that comes to no loader ends here: could-not-run.
2. Each loader that it used climbs those rungs of the ladder that can tell something. One that it made
   beforehand and did not come to, often for validation after a long epoch, is looked at ahead. A program that
   did not come to a second epoch runs once more with short ones: what shows only later is seen there.
3. Rules read the facts; one that raises is noted and cannot stop the exam.
4. Each finding is tested by its experiments, the most important first, while there is time.
5. When a cure of what stopped the program is verified, the program runs again with it in place: what the
   first illness hid comes to light, up to three layers deep.
6. Each sick loader is tried once with our own in its place.

Everything of the patient happens in other processes (`_lab`); here is only the order of things.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock._clinic import experiment as judge
from penstock._clinic import failures, ignore, ladder, reasons, summary
from penstock._clinic.again import by_line
from penstock._clinic.causes import OF_FORK
from penstock._clinic.conduct import LOADER_S, RUNG_EPOCHS, TIMED_S, Bench, made_at, timed_s
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding
from penstock._clinic.hang import timed_out
from penstock._clinic.merge import merge, rests_on_source
from penstock._clinic.order import order
from penstock._clinic.prescribing import prescribed
from penstock._clinic.report import Reason, Report
from penstock._clinic.rule import Rule
from penstock._clinic.settings import Options
from penstock._clinic.settle import is_about_speed, settle
from penstock._clinic.slowness import slow_loaders
from penstock._clinic.source import Source
from penstock._clinic.trials import ABREAST, Run, Say, Trials
from penstock._lab.plan import Change, Plan
from penstock._lab.record import HostSeen, LoaderSeen, Trial

# The observed run may take this much of the budget: it is ended sooner, once batches flow or nothing moves.
OBSERVED_SHARE = 0.7
# Seconds of batches in it.
OBSERVED_LOADER_S = 12.0
# Up to so many while something is to come: a loader that was made waits for its turn, often the one for
# validation, descriptors run out, a timer is set.
OBSERVED_LONGEST_S = 24.0
# Epochs that are over sooner are watched for longer: what fills up slowly, and what comes after the first
# loader, is seen only then.
OBSERVED_MIN_S = 8.0
# Where the source tells of something that comes to light only after some epochs, so much longer.
LATE = {"stale-dataset-in-workers": 2.0}
# Of the whole budget, for the end of the last trial: looks at a stuck program, and the end of its processes.
RESERVE = 0.06
OURS = "the program with penstock's loader in place"
# Times the longest batch that was seen, after which our loader may take a worker for stuck.
PATIENCE = 3.0
# How many illnesses may hide one behind another.
LAYERS = 3
# The ladder may take this much of the budget; the rest is for experiments.
LADDER_SHARE = 0.5
# Batches of a pass, and passes, of a program whose own epochs are too long to see a second one; and for how
# long it is watched so.
SHORT, SHORT_EPOCHS, SHORT_S = 10, 4, 8.0
# What a pass that was cut short can tell of, besides failures: nothing that counts batches.
LATER = frozenset({"stale-dataset-in-workers"})
# So many loaders are looked at that the program made and did not come to in time.
AHEAD = 2
# Where less than this is free, two trials at a time would be each other's illness.
ROOMY_SHM, ROOMY_MEMORY = 1 << 30, 2 << 30


def _silent(sentence: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Practice:
    """What an exam works with; tests put their own in place."""

    run: Run
    rules: Sequence[Rule]
    read: Callable[[Any], Source]


def examine(target: Any, *, options: Options, practice: Practice, say: Say = _silent) -> Report:
    """Examine a resolved target, and report."""
    return Exam(target, options, practice, say).report()


@dataclass(slots=True)
class Exam:
    """One exam, while it goes on."""

    target: Any
    options: Options
    practice: Practice
    say: Say
    trials: Trials = field(init=False)
    notes: list[str] = field(default_factory=list)
    source: Source | None = None
    rungs: list[Trial] = field(default_factory=list)
    refuted: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        budget_s = self.options.timeout * (1 - RESERVE)
        self.trials = Trials(self.practice.run, self.target, budget_s, self.say)

    def report(self) -> Report:
        """Go through the whole exam."""
        try:
            return self._examined()
        finally:
            self.trials.close()

    def _examined(self) -> Report:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            self.source = self.practice.read(self.target)
        observed = self._observe()
        if observed is None:
            return self._could_not(reasons.not_run("; ".join(self.trials.notes) or "no trial could be run"))
        reason = reasons.could_not_run(observed)
        if reason is not None:
            return self._could_not(reason, observed)
        self.trials.learn(observed)
        self._climb(observed)
        layers = self._layers(observed)
        return self._concluded(observed, layers)

    # The observed run and the ladder.

    def _observe(self) -> Trial | None:
        longer = max((LATE.get(each.cause, 1.0) for each in self._ask(Facts(self.source))), default=1.0)
        share_s = self.options.timeout * OBSERVED_SHARE
        loader_s = min(longer * OBSERVED_LOADER_S, share_s / 2)
        plan = Plan(
            drive="script",
            max_s=min(share_s, self.options.timeout - 1),
            loader_s=loader_s,
            late_s=min(max(0.0, OBSERVED_LONGEST_S - loader_s), share_s / 4),
            min_s=longer * OBSERVED_MIN_S,
        )
        return self.trials.observe(plan, f"observed run: {summary.name(self.target)} as it is")

    def _climb(self, observed: Trial) -> None:
        """The reference pass of every loader that was used, two at a time where that disturbs nobody.

        Of a program that was stopped the run with our own loader is wanted in any case: it goes along.
        """
        keys = [loader.key for loader in summary.distinct(Facts(observed=observed))]
        is_quiet = self._is_quiet(observed)
        asked = [(_rung_plan(key, 0, observed, is_timed=not is_quiet), _sentence(key, 0)) for key in keys]
        at_once = ABREAST if is_quiet else 1
        if observed.outcome != "ok" and self._begin_ours(observed):
            at_once = 1
        asked += [(_early_plan(each, observed), _early(each)) for each in summary.unreached(observed)[:AHEAD]]
        self.rungs += filter(None, self.trials.abreast(asked, at_once=at_once))

    @staticmethod
    def _is_quiet(observed: Trial) -> bool:
        """Whether two trials at a time disturb nobody: no speed is asked for, and nothing is scarce."""
        is_slow = any(each.is_worth_a_trial for each in slow_loaders(Facts(observed=observed)))
        return observed.outcome != "oom" and is_roomy(observed.host) and not is_slow

    def _begin_ours(self, observed: Trial) -> bool:
        """Let the run with our own loader go along, where that disturbs nobody; whether it does."""
        is_wise = self._tries_ours and self._is_quiet(observed)
        if is_wise:
            self.trials.aside(_with_our_loader(observed), OURS)
        return is_wise

    @property
    def _tries_ours(self) -> bool:
        return self.options.experiments and not self.options.quick

    def _climb_for_speed(self, observed: Trial) -> None:
        """The rungs of loaders on which the program waits, each alone on the machine."""
        facts = self._facts(observed)
        keys = {loader.key for loader in summary.distinct(facts)}
        waited_for = [each.loader for each in slow_loaders(facts) if each.is_worth_a_trial]
        for loader in (each for each in waited_for if each.key in keys):
            question = dataclasses.replace(self._question(loader, observed), is_slow=True)
            self._climb_one(loader.key, question, observed)
        self._sort_rungs(observed)

    def _question(self, loader: LoaderSeen, observed: Trial) -> ladder.Question:
        return ladder.Question(
            own=summary.own_workers(loader),
            has_lock=any(thing.kind == "mp-lock" for thing in loader.things),
            cpus=max(1, int(observed.host.cpus)),
            quick=self.options.quick,
            most=self.options.workers,
        )

    def _climb_one(self, key: str, question: ladder.Question, observed: Trial) -> None:
        while True:
            seen = {
                summary.workers_of(trial): trial.outcome for trial in self.rungs if trial.plan.loader == key
            }
            workers = ladder.next_rung(question, seen)
            if workers is None or workers in seen:
                return
            if workers != question.own and self.trials.seconds > self.options.timeout * LADDER_SHARE:
                return
            plan = _rung_plan(key, workers, observed, is_timed=question.is_slow)
            trial = self.trials.run(plan, _sentence(key, workers))
            if trial is None:
                return
            self.rungs.append(trial)

    def _find_where_it_begins(self, layers: list[list[Finding]], observed: Trial) -> None:
        """For what reaches a limit of the machine: with how many workers, if there is time to see."""
        for finding in order(layers):
            loader = observed.loader(finding.loader) if finding.loader else None
            if loader is not None and finding.severity == "error" and finding.code.startswith("PS2"):
                question = self._question(loader, observed)
                self._climb_one(loader.key, dataclasses.replace(question, where_it_begins=True), observed)
        self._sort_rungs(observed)

    def _sort_rungs(self, observed: Trial) -> None:
        loaders = (*summary.used(Facts(observed=observed)), *summary.unreached(observed))
        keys = [loader.key for loader in loaders]
        self.rungs.sort(key=lambda trial: (keys.index(trial.plan.loader or ""), summary.workers_of(trial)))

    # Rules and experiments, layer by layer.

    def _layers(self, observed: Trial) -> list[list[Finding]]:
        bench = self._bench(observed, Change())
        found = self._found(self._facts(observed), _is_no_slowness)
        if any(self._is_worth_testing(finding, (), bench) for finding in found):
            self._begin_ours(observed)
        layers = [self._tested(bench, found)]
        while self.options.experiments and len(layers) < LAYERS:
            below = self._below(layers[-1], bench)
            if below is None:
                break
            bench = below
            facts = Facts(None, bench.observed, tuple(self.rungs))
            layer = self._tested(bench, self._found(facts, _is_news(layers, bench.cure)))
            if not layer:
                break
            _supersede(layers, layer)
            layers.append(layer)
        later = self._later(layers, observed)
        _supersede(layers, later)
        layers[0] += self._slowness(observed)
        self._try_ours(layers, observed)  # which comes no further than the program did
        layers[0] += later
        self._find_where_it_begins(layers, observed)
        return layers

    def _later(self, layers: list[list[Finding]], observed: Trial) -> list[Finding]:
        """What shows only after the first epoch, in a program that did not come so far: see `SHORT`."""
        if not _is_cut_short(observed) or not self.options.experiments or self.options.quick:
            return []
        self.trials.rejoin()
        plan = dataclasses.replace(
            observed.plan, short=SHORT, epochs=SHORT_EPOCHS, loader_s=SHORT_S, late_s=SHORT_S, min_s=0.0
        )
        later = self.trials.run(plan, f"the same with epochs of {SHORT} batches")
        if later is None:
            return []
        bench = self._bench(later, Change())
        is_news = _is_news(layers, Change())
        facts = Facts(self.source, later, tuple(self.rungs))
        return self._tested(bench, self._found(facts, lambda each: is_news(each) and _is_of_later(each)))

    def _slowness(self, observed: Trial) -> list[Finding]:
        """What makes a program slow that otherwise goes well: last, for it takes the longest to measure."""
        if observed.outcome != "ok":
            return []
        self.trials.rejoin()
        self._climb_for_speed(observed)
        facts = self._facts(observed)
        found = self._found(facts, is_about_speed)
        # There may not be time for all: what is waited for most is tried first.
        waited_for = {each.loader.key: place for place, each in enumerate(slow_loaders(facts))}
        found.sort(key=lambda finding: waited_for.get(finding.loader or "", len(waited_for)))
        return self._tested(self._bench(observed, Change()), found)

    def _facts(self, observed: Trial) -> Facts:
        return Facts(self.source, observed, tuple(self.rungs))

    def _found(self, facts: Facts, is_wanted: Callable[[Finding], bool]) -> list[Finding]:
        """Those findings on these facts that are wanted, the worst first."""
        asked = [self._prescribed(finding) for finding in merge(self._ask(facts))]
        return list(order([[finding for finding in asked if is_wanted(finding)]]))

    def _prescribed(self, finding: Finding) -> Finding:
        try:
            return prescribed(finding, self.source)
        except Exception as error:  # noqa: BLE001 - a patch that cannot be made cannot stop the exam
            self._note(f"the patch of {finding.code} failed: {type(error).__name__}: {error}")
            return finding

    def _tested(self, bench: Bench, found: list[Finding]) -> list[Finding]:
        """The same, each with what its experiments have shown; without those that were refuted."""
        for place, finding in enumerate(found if self.options.experiments else ()):
            if not self._is_worth_testing(finding, found[:place], bench):
                continue
            try:
                found[place] = bench.test(finding)
            except Exception as error:  # noqa: BLE001 - nor can an experiment
                self._note(f"the experiments of {finding.code} failed: {type(error).__name__}: {error}")
        stay, refuted = settle(found)
        self.refuted += refuted
        return stay

    @staticmethod
    def _is_worth_testing(finding: Finding, before: Sequence[Finding], bench: Bench) -> bool:
        if finding.severity == "info":
            return False
        if is_about_speed(finding):
            # What else slows the same loader down can only be measured when this is gone.
            return not any(
                each.proof.status == "verified" and each.loader == finding.loader for each in before
            )
        # What the source alone suspects is tried only when something is wrong: else nothing could go away.
        return not rests_on_source(finding) or judge.ill(bench.observed, None) is not None

    def _bench(self, observed: Trial, cure: Change) -> Bench:
        references = {
            trial.plan.loader: trial
            for trial in self.rungs
            if trial.plan.loader and summary.workers_of(trial) == 0 and trial.outcome == "ok"
        }
        return Bench(self.trials, observed, self._fires, references, cure)

    def _ask(self, facts: Facts) -> list[Finding]:
        found: list[Finding] = []
        for rule in self.practice.rules:
            if not rule.needs <= facts.at_hand or not self._is_chosen(rule.code, rule.cause):
                continue
            try:
                found += rule.check(facts)
            except Exception as error:  # noqa: BLE001 - a rule cannot stop the exam
                self._note(f"the rule {rule.code} failed: {type(error).__name__}: {error}")
        return [finding for finding in found if self._is_shown(finding)]

    def _fires(self, finding: Finding, trial: Trial) -> bool:
        """Whether a finding would be made on another trial."""
        # A rung of another loader has this one as the program has it, without any change.
        rungs = tuple(
            rung
            for rung in self.rungs
            if _is_zero(rung) and (finding.loader is None or rung.plan.loader in {None, finding.loader})
        )
        facts = Facts(self.source, trial, rungs)
        is_moved = bool(trial.plan.change.patched)  # a patch moves lines, and loaders are known by theirs
        for rule in self.practice.rules:
            # What the source alone says, it says of every trial.
            if rule.code != finding.code or not rule.needs <= facts.at_hand or "source" in rule.needs:
                continue
            with contextlib.suppress(Exception):
                if any(is_moved or each.loader in {None, finding.loader} for each in rule.check(facts)):
                    return True
        return False

    def _is_chosen(self, code: str, cause: str) -> bool:
        return ignore.is_chosen(code, cause, select=self.options.select, ignore=self.options.ignore)

    def _is_shown(self, finding: Finding) -> bool:
        """Whether neither the file nor its line asks for silence."""
        where = finding.where
        if where is None:
            return True
        patterns = ignore.ignored_in(where.file, self.options.per_file_ignores)
        for file in self.source.files if self.source else ():
            if file.path == where.file:
                patterns = (*patterns, *ignore.comments(file.text).get(where.line, ()))
        return not any(ignore.matches(pattern, finding.code, finding.cause) for pattern in patterns)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # Peeling, and our own loader.

    def _below(self, layer: Sequence[Finding], bench: Bench) -> Bench | None:
        """The bench of the next layer: the program with what stopped it cured; None where there is none."""
        cured = self._cured(layer, bench)
        return None if cured is None else self._peel(cured, bench)

    def _cured(self, layer: Sequence[Finding], bench: Bench) -> Finding | None:
        """The first error that stopped the program and whose cure was verified."""
        for finding in order([layer]):
            if finding.severity != "error":
                continue
            if finding.proof.status == "verified" and _identity(finding) in bench.cures:
                return finding if judge.ill(bench.observed, None) is not None else None
        return None

    def _peel(self, finding: Finding, bench: Bench) -> Bench | None:
        """The program again, with this illness cured."""
        after, experiment = bench.cures[_identity(finding)]
        plan = dataclasses.replace(bench.observed.plan, loader=made_at(finding.loader)).plus(experiment.base)
        plan = plan.plus(experiment.change)
        if after.plan.drive == "script":
            again: Trial | None = after
        else:
            again = self.trials.run(plan, f"again, with that cured: {experiment.title}")
        if again is None:
            return None
        return self._bench(again, plan.change)

    def _try_ours(self, layers: list[list[Finding]], observed: Trial) -> None:
        """The program with our loader in torch's place, as `penstock run` would run it, if it is sick."""
        alarms = [finding for layer in layers for finding in layer if finding.severity != "info"]
        if not alarms or not self._tries_ours:
            return
        self.trials.rejoin()
        plan = _with_our_loader(observed, is_timed=all(map(is_about_speed, alarms)))
        known = self.trials.like(plan)
        ours = known[-1] if known else self.trials.run(plan, OURS)
        for number, layer in enumerate(layers):
            # What came to light behind another illness is not cured by going on as far as to it.
            is_beyond = number > 0 and ours is not None and judge.ill(ours, None) is not None
            layer[:] = [self._with_ours(each, ours, observed, is_beyond=is_beyond) for each in layer]

    def _with_ours(
        self, finding: Finding, ours: Trial | None, observed: Trial, *, is_beyond: bool
    ) -> Finding:
        if ours is None or finding.severity == "info":
            return finding
        is_cured = False if is_beyond else self._is_cured(finding, ours, observed)
        return dataclasses.replace(finding, cured_by_penstock=is_cured)

    def _is_cured(self, finding: Finding, ours: Trial, observed: Trial) -> bool | None:
        key = finding.loader
        if finding.cause == "slow-shutdown":  # whose time lies after the last batch, where no speed sees it
            return not self._fires(finding, ours)
        if is_about_speed(finding):
            was, now = judge.speeds(observed, ours, key or "")
            return None if not was or not now else now / was >= 1.0 and not self._fires(finding, ours)
        if judge.ill(ours, None) is None and judge.progress(ours, key):
            return judge.ill(observed, key) is not None or not self._fires(finding, ours)
        if judge.ill(observed, key) is None:
            return None  # another illness than this stopped it
        return self._is_plain(ours, observed, key) or judge.gone("", observed, ours, key).status == "verified"

    def _is_plain(self, ours: Trial, observed: Trial, key: str | None) -> bool:
        """Whether a hang or a death has become what the program itself raises without workers."""
        zero = next((each for each in self.rungs if each.plan.loader == key and _is_zero(each)), None)
        was, now, plain = (judge.ill(each, None) if each else None for each in (observed, ours, zero))
        if was is None or now is None or plain is None or was.kind == "error":
            return False
        return now.kind == "error" and failures.bare(now.name) == failures.bare(plain.name)

    # The report.

    def _could_not(self, reason: Reason, observed: Trial | None = None) -> Report:
        return summary.could_not_run(
            summary.name(self.target),
            self.trials.seconds,
            reason,
            observed=observed,
            notes=(*self.notes, *self.trials.notes),
        )

    def _concluded(self, observed: Trial, layers: list[list[Finding]]) -> Report:
        return summary.concluded(
            summary.name(self.target),
            self.trials.seconds,
            Facts(self.source, observed, tuple(self.rungs)),
            (order(layers), tuple(self.refuted)),
            (*self.notes, *self.trials.notes),
        )


def is_roomy(host: HostSeen) -> bool:
    """Whether two trials at a time cannot be each other's illness."""
    has_shm = not host.shm_size or host.shm_free >= ROOMY_SHM
    return has_shm and host.cpus >= ABREAST and (not host.memory_limit or host.memory_limit >= ROOMY_MEMORY)


def _with_our_loader(observed: Trial, *, is_timed: bool = False) -> Plan:
    longest_s = max((fetch.samples_s + fetch.collate_s for fetch in observed.fetches), default=0.0)
    plan = dataclasses.replace(observed.plan, loader=None).plus(Change(use_penstock=True))
    plan = dataclasses.replace(plan, stall_s=max(plan.stall_s, PATIENCE * longest_s))
    return dataclasses.replace(plan, loader_s=TIMED_S, late_s=0.0, min_s=0.0) if is_timed else plan


def _rung_plan(key: str, workers: int, observed: Trial, *, is_timed: bool) -> Plan:
    return Plan(
        drive="loader",
        loader=key,
        change=Change(settings={"num_workers": workers, **_patience(observed)}),
        epochs=RUNG_EPOCHS,
        loader_s=timed_s(observed, key) if is_timed else LOADER_S,
        max_s=observed.plan.max_s,
    )


def _early_plan(loader: LoaderSeen, observed: Trial) -> Plan:
    """One pass over a loader that the program has made and not come to, with its own settings."""
    plan = _rung_plan(loader.key, summary.own_workers(loader), observed, is_timed=False)
    return dataclasses.replace(plan, is_early=True, epochs=1)


def _patience(observed: Trial) -> dict[str, Any]:
    """A `timeout` of the program that passed hides what it waited for: rungs wait until they are seen."""
    return {"timeout": 0} if timed_out(observed) else {}


def _is_zero(trial: Trial) -> bool:
    return summary.workers_of(trial) == 0


def _sentence(key: str, workers: int) -> str:
    return f"ladder: {key.partition('#')[0]} with num_workers={workers}"


def _early(loader: LoaderSeen) -> str:
    return f"a look ahead: {loader.key.partition('#')[0]}, which the program did not come to"


def _is_no_slowness(finding: Finding) -> bool:
    return not is_about_speed(finding)


def _is_cut_short(observed: Trial) -> bool:
    """Whether a program that does well was not seen beyond its first epoch."""
    if observed.outcome != "ok" or observed.ended_by != "enough":
        return False
    own = by_line(observed)
    return not any(len(own.of(loader.key)) > 1 for loader in own.loaders)


def _is_of_later(finding: Finding) -> bool:
    return finding.cause in LATER or finding.stopped_at_s is not None


def _is_news(layers: Sequence[Sequence[Finding]], cure: Change) -> Callable[[Finding], bool]:
    """Whether a finding of a deeper layer tells of another illness, and not of the cure's own price."""
    known = {finding.cause for layer in layers for finding in layer if not _is_remark_on_source(finding)}
    if cure.settings.get("multiprocessing_context") == "fork":
        known |= OF_FORK

    def ask(finding: Finding) -> bool:
        return finding.cause not in known and finding.severity != "info" and not is_about_speed(finding)

    return ask


def _is_remark_on_source(finding: Finding) -> bool:
    """Whether the source alone speaks for it: what is seen at work later says more."""
    return finding.severity == "info" and rests_on_source(finding)


def _supersede(layers: Sequence[list[Finding]], layer: Sequence[Finding]) -> None:
    """Leave out what the source was suspected of before it was seen at work."""
    seen = {finding.cause for finding in layer}
    for earlier in layers:
        earlier[:] = [each for each in earlier if not (_is_remark_on_source(each) and each.cause in seen)]


def _identity(finding: Finding) -> tuple[str, str | None]:
    return finding.cause, finding.loader
