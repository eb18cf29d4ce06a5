"""The report of an exam, made of its facts and findings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock._clinic import experiment as judge
from penstock._clinic import reasons
from penstock._clinic.again import firsts
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding
from penstock._clinic.report import LoaderLine, Reason, Report, Rung
from penstock._lab.record import LoaderSeen, Trial


def could_not_run(
    target: str, seconds: float, reason: Reason, *, observed: Trial | None, notes: Iterable[str] = ()
) -> Report:
    """The report of a program that could not be examined."""
    return Report(
        target=target,
        verdict="could-not-run",
        seconds=seconds,
        loaders=_lines(observed.loaders if observed else ()),
        reason=reason,
        notes=tuple(dict.fromkeys(notes)),
        memory=_memory(observed),
        stacks=observed.looks if observed else (),
    )


def concluded(
    target: str,
    seconds: float,
    facts: Facts,
    findings: tuple[Sequence[Finding], Sequence[Finding]],
    notes: Iterable[str] = (),
) -> Report:
    """The report of an exam that was done: `findings` are those that stay, in order, and those refuted."""
    observed = facts.observed
    assert observed is not None, "an exam has an observed run"
    stay, refuted = findings
    is_sick = any(finding.severity != "info" for finding in stay)
    reason = None if is_sick else reasons.failed_elsewhere(observed)
    still = reasons.stood_still(observed)
    return Report(
        target=target,
        verdict="sick" if is_sick else "could-not-run" if reason else "healthy",
        seconds=seconds,
        loaders=_lines(distinct(facts)),
        ladder=_ladder(facts, observed),
        findings=tuple(stay),
        refuted=tuple(refuted),
        reason=reason,
        notes=tuple(dict.fromkeys([still, *notes] if still else notes)),
        memory=_memory(observed),
        stacks=observed.looks,
    )


def name(target: Any) -> str:
    """What to call a target."""
    return str(getattr(target, "name", target))


def used(facts: Facts) -> tuple[LoaderSeen, ...]:
    """Loaders that were iterated, or on which something failed, once each by key."""
    observed = facts.observed
    if observed is None:
        return ()
    keys = {seen.loader for seen in observed.iterators} | {each.loader for each in observed.failures}
    found: dict[str, LoaderSeen] = {}
    for loader in facts.loaders:
        if loader.key in keys:
            found.setdefault(loader.key, loader)
    return tuple(found.values())


def unreached(observed: Trial) -> tuple[LoaderSeen, ...]:
    """Loaders made beforehand, and not come to before the watch over a program that does well had to end."""
    if observed.outcome != "ok" or observed.ended_by not in {"enough", "time"}:
        return ()
    keys = {loader.key for loader in used(Facts(observed=observed))}
    found: dict[str, LoaderSeen] = {}  # ranks make the same
    for loader in observed.loaders:
        if loader.is_beforehand and loader.key not in keys:
            found.setdefault(loader.key, loader)
    return tuple(found.values())


def distinct(facts: Facts) -> tuple[LoaderSeen, ...]:
    """Those that differ: of loaders that one line makes again and again the first, and any that failed."""
    observed = facts.observed
    if observed is None:
        return ()
    wrong = {each.loader for each in observed.failures} | {each.loader for each in observed.deaths}
    found = used(facts)
    meant = firsts(observed, found)
    return tuple(loader for loader in found if loader.key in wrong or meant[loader.key] == loader.key)


def own_workers(loader: LoaderSeen) -> int:
    """num_workers as in force."""
    value = loader.settings.get("num_workers", 0)
    return value if isinstance(value, int) else 0


def workers_of(trial: Trial) -> int:
    """num_workers of a rung."""
    value = trial.plan.change.settings.get("num_workers", 0)
    return value if isinstance(value, int) else 0


def _ladder(facts: Facts, observed: Trial) -> tuple[Rung, ...]:
    """Every rung; where the user's own number was not climbed, the observed run stands for it."""
    rungs: list[Rung] = []
    for loader in distinct(facts):
        own = [_rung(trial, loader.key, observed) for trial in facts.rungs(loader.key)]
        if not any(rung.num_workers == own_workers(loader) for rung in own):
            own.append(_rung(observed, loader.key, observed))
        rungs += own
    ahead = [loader.key for loader in unreached(observed)]
    rungs += [_rung(trial, key, observed) for key in ahead for trial in facts.rungs(key)]
    return tuple(rungs)


def _lines(loaders: Iterable[LoaderSeen]) -> tuple[LoaderLine, ...]:
    return tuple(
        LoaderLine(
            name=seen.name or seen.key,
            file=seen.site.file if seen.site else "",
            line=seen.site.line if seen.site else 0,
            settings=seen.settings,
        )
        for seen in loaders
    )


def _memory(observed: Trial | None) -> tuple[tuple[float, int], ...]:
    return tuple((seen.at_s, seen.tree_pss) for seen in observed.vitals) if observed else ()


def _rung(trial: Trial, key: str, observed: Trial) -> Rung:
    loader = trial.loader(key) or observed.loader(key)
    wrong = judge.ill(trial, key)
    changed = trial.plan.change.settings.get("num_workers")
    speed = judge.speed(trial, key) if wrong is None else None
    return Rung(
        num_workers=changed if isinstance(changed, int) else own_workers(loader) if loader else 0,
        start_method=loader.start_method if loader else "",
        outcome=trial.outcome if trial.outcome != "ok" or wrong is None else "error",
        samples_per_s=None if speed is None else round(speed, 1),
        detail=_detail(wrong, trial, key),
        loader=key,
        memory=max((seen.tree_pss for seen in trial.vitals), default=None),
        shm=max((seen.shm_used for seen in trial.vitals), default=None),
        descriptors=max((max(seen.main_fds, seen.worker_fds) for seen in trial.vitals), default=None),
        threads=max((fetch.threads for fetch in trial.fetches), default=None),
        restarts=max(0, len(trial.of(key)) - 1),
    )


def _detail(wrong: judge.Ill | None, trial: Trial, key: str) -> str:
    if wrong is None:
        return "" if trial.of(key) else "the loader was not reached"
    at = "" if wrong.index is None else f" (sample {wrong.index})"
    return f"{wrong}{at}"
