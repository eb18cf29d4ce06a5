"""A prescription with its patch: the exact change of the user's file, and the trial that tries it. Pure."""

from __future__ import annotations

import dataclasses

from penstock._clinic import patches
from penstock._clinic.finding import Experiment, Finding
from penstock._clinic.source import Source
from penstock._lab.plan import Change


def prescribed(finding: Finding, source: Source | None) -> Finding:
    """The finding with a unified diff, and the program so patched as its remedy, where one can be made."""
    prescription = finding.prescription
    if source is None or prescription.fix is None or prescription.patch is not None:
        return finding
    texts = {file.path: file.text for file in source.files}
    made = patches.make(prescription.fix, texts)
    if made is None:
        return finding
    path, new = made
    patched = dataclasses.replace(prescription, patch=patches.diff(path, texts[path], new))
    remedy = finding.remedy
    # Options are tried without a patch already, and speeds are compared loader by loader.
    if remedy is None and prescription.fix.name != "set-option" and _is_about_a_failure(finding):
        remedy = _tried(finding, Change(patched={path: new}))
    return dataclasses.replace(finding, prescription=patched, remedy=remedy)


def _tried(finding: Finding, change: Change) -> Experiment:
    """The program with the patch: as it runs, or in the only frame in which the ill shows."""
    title = "the program with this patch"
    framed = next((each for each in finding.experiments if each.base), None)
    if framed is None:
        return Experiment(title, change, drive="script")
    return dataclasses.replace(framed, title=title, change=change)


def _is_about_a_failure(finding: Finding) -> bool:
    return finding.severity == "error" and all(each.measure == "gone" for each in finding.experiments)
