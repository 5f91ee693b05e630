"""Measures the groups of a card one after the other; what one of them does is lost by none of the others."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ebclab.card.card import Card, CardFolder, GroupResult
from ebclab.card.catalog import GROUPS
from ebclab.card.measuring import Measuring, Need
from ebclab.card.results import Findings
from ebclab.config.names import did_you_mean
from ebclab.errors import EbclabError, UserError
from ebclab.evaluation.evaluate import PROBES

_log = logging.getLogger("ebclab.evaluation")
_NOTHING = Findings(())


def chosen_groups(only: Sequence[str]) -> list[str]:
    """Return the groups to measure, in the order of the catalogue: the quick ones when nothing is named, or all.

    Args:
        only: Names of groups, or "all".

    Raises:
        UserError: Names that are none, each with the nearest one.
    """
    if wrong := [name for name in only if name not in (*GROUPS, "all", *PROBES)]:
        known = [*GROUPS, "all", *PROBES]
        raise UserError(
            "\n".join(f"--only: no such group, got {name!r}; {did_you_mean(name, known)}" for name in wrong)
        )
    if probes := [name for name in only if name in PROBES]:
        raise UserError(f"--only: name groups of the card or single probes, got both, {', '.join(probes)} among groups")
    if not only:
        return [name for name, entry in GROUPS.items() if entry.info.is_quick]
    return [name for name in GROUPS if name in only or "all" in only]


def measure_card(
    measuring: Measuring, groups: Sequence[str], folder: CardFolder | None, environment: dict[str, Any]
) -> Card:
    """Return the card of one encoder; what was measured before on the same encoder and images is not measured again.

    Args:
        measuring: The encoder, the images and what was asked for.
        groups: Names of groups.
        folder: Where results are kept, each as soon as it is there; None keeps nothing.
        environment: Versions, machine and device; another version of ebclab measures anew.

    Raises:
        OSError: The disk refuses.
    """
    results = []
    for name in groups:
        key = _key(name, measuring, str(environment["ebclab"]))
        result = folder.read(name, key) if folder else None
        if result is None:
            result = _measured(name, key, measuring)
            if folder and not result.problem:
                folder.write(result)
        results.append(result)
    subject, data = measuring.subject, measuring.measured
    return Card(
        label=subject.label,
        address=subject.address,
        origin=subject.origin,
        encoder=subject.digest,
        settings=subject.settings,
        seed=subject.seed,
        dataset=data.name,
        data=data.digest,
        num_train=len(data.train),
        num_test=len(data.test),
        environment=environment,
        results=tuple(results),
    )


def _key(name: str, measuring: Measuring, version: str) -> str:
    """Return the hash of everything that a group's findings depend on."""
    facts = {
        "group": name,
        "version": version,
        "encoder": measuring.subject.digest,
        "run": measuring.subject.settings,
        "data": measuring.measured.digest,
        "others": [[other.name, other.digest] for other in measuring.others],
        "outside": [[each.name, each.kind, each.digest] for each in measuring.outside],
        "options": asdict(measuring.options),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _measured(name: str, key: str, measuring: Measuring) -> GroupResult:
    """Return what a group finds, or why it finds nothing; only the user's own interruption ends the card."""
    entry, began = GROUPS[name], time.monotonic()
    missing = [problem for need in entry.info.needs if (problem := _missing(need, measuring))]
    if missing:
        return GroupResult(name, key, _NOTHING, 0.0, missing[0])
    failed, findings, problem = False, _NOTHING, ""
    try:
        findings = entry.measure(measuring)
        problem = _not_finite(findings)
        failed = bool(problem)
    except EbclabError as error:
        problem = str(error)
    except Exception as error:  # whatever it is, the other groups go on
        _log.exception("%s: failed", name)
        problem, failed = f"{type(error).__name__}: {error}", True
    return GroupResult(name, key, _NOTHING if problem else findings, time.monotonic() - began, problem, failed)


def _missing(need: Need, measuring: Measuring) -> str:
    """Return why a group that has this need cannot be measured; empty when it can."""
    if need == "labels":
        return measuring.measured.label_problem
    if need == "outside" and not measuring.outside:
        return "no images from outside were named; add --ood NAME, such as --ood rotated"
    if need == "other dataset" and not measuring.others:
        return "no other dataset was named; add a second --dataset"
    return ""


def _not_finite(findings: Findings) -> str:
    wrong = [number.name for number in findings.numbers if not math.isfinite(number.value)]
    return f"gave NaN or infinity for {', '.join(wrong)}" if wrong else ""
