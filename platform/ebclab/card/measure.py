"""Measures the groups of a card one after the other; a failure of one does not affect the others."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ebclab.card.card import Card, CardFolder, Findings, GroupResult
from ebclab.card.groups import GROUPS
from ebclab.card.images import MeasuredSet
from ebclab.card.measuring import Measuring
from ebclab.card.request import CardRequest
from ebclab.config.names import did_you_mean
from ebclab.errors import EbclabError, UserError
from ebclab.evaluation.evaluate import PROBES

_log = logging.getLogger("ebclab.evaluation")
_NOTHING = Findings(())


def chosen_groups(only: Sequence[str]) -> list[str]:
    """Return the groups to measure, in the order of the catalogue; if none are named, the quick ones."""
    if wrong := [name for name in only if name not in (*GROUPS, "all", *PROBES)]:
        known = [*GROUPS, "all", *PROBES]
        raise UserError(
            "\n".join(f"--only: no such group, got {name!r}; {did_you_mean(name, known)}" for name in wrong)
        )
    if probes := [name for name in only if name in PROBES]:
        raise UserError(f"--only: name groups of the card or single probes, got both, {', '.join(probes)} among groups")
    if not only:
        return [name for name, entry in GROUPS.items() if entry.is_quick]
    return [name for name in GROUPS if name in only or "all" in only]


def groups_of(request: CardRequest) -> tuple[str, ...]:
    """Return the groups to measure."""
    problems, chosen = request.problems(), list[str]()
    try:
        chosen = chosen_groups(request.only)
    except UserError as error:
        problems.append(str(error))
    if problems:
        raise UserError("\n".join(problems))
    return tuple(chosen)


@dataclass(frozen=True)
class CardTask:
    """One card to measure."""

    measuring: Measuring
    groups: tuple[str, ...]  # in the order of the catalogue
    folder: CardFolder | None  # where each result is saved as soon as it is available; None saves nothing
    device: str = "auto"  # the setting ``resources.device``
    threads: int = 0  # the setting ``resources.threads``

    def known(self, group: str, version: str) -> GroupResult | None:
        """Return a result that this version of ebclab saved, or why the group is skipped; None: to be measured."""
        key = self.key(group, version)
        kept = self.folder.read(group, key) if self.folder else None
        if kept is not None:
            return kept
        missing = [problem for need in GROUPS[group].needs if (problem := need.problem(self.measuring))]
        return GroupResult(group, key, _NOTHING, 0.0, missing[0]) if missing else None

    def keep(self, result: GroupResult) -> None:
        """Save the results of a group, unless it failed."""
        if self.folder and not result.problem:
            self.folder.write(result)

    def key(self, group: str, version: str) -> str:
        """Return the hash of everything that a group's findings depend on."""
        measuring = self.measuring
        facts = {
            "group": group,
            "version": version,
            "encoder": measuring.subject.digest,
            "energies": measuring.subject.energies and measuring.subject.energies.digest,
            "run": measuring.subject.settings,
            "data": _identity(measuring.measured),
            "others": [_identity(other) for other in measuring.others],
            "outside": [[each.name, each.kind, each.digest] for each in measuring.outside],
            "options": asdict(measuring.options),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def with_kept(self, card: Card) -> Card:
        """Return the card of this task with the other groups that were measured before with its options."""
        if self.folder is None:
            return card
        version, asked = str(card.environment["ebclab"]), {result.group: result for result in card.results}
        every = (asked.get(group) or self.folder.read(group, self.key(group, version)) for group in GROUPS)
        return replace(card, results=tuple(filter(None, every)))

    def card(self, results: Mapping[str, GroupResult], environment: Mapping[str, Any]) -> Card:
        """Return the card with these results."""
        subject, data = self.measuring.subject, self.measuring.measured
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
            results=tuple(results[group] for group in self.groups),
            num_repeated=data.num_repeated,
            paper=subject.paper,
            tests_held_out=data.tests_held_out,
        )


def measure_card(task: CardTask, environment: Mapping[str, Any]) -> Card:
    """Return the card of one encoder; results saved earlier for the same encoder, images and options are reused."""
    version, results = str(environment["ebclab"]), {}
    work, total = f"groups of {task.measuring.subject.label}", len(task.groups)
    for done, group in enumerate(task.groups):
        task.measuring.on_progress(done, total, work)
        if (result := task.known(group, version)) is None:
            result = measure_group(group, task.key(group, version), task.measuring)
            task.keep(result)
        results[group] = result
    task.measuring.on_progress(total, total, work)
    return task.card(results, environment)


def measure_group(name: str, key: str, measuring: Measuring) -> GroupResult:
    """Return the result of a group; any ``Exception`` becomes its ``problem``, an interrupt is raised."""
    began, failed, findings, problem = time.monotonic(), False, _NOTHING, ""
    try:
        findings = GROUPS[name].measure(measuring)
        if wrong := [number.name for number in findings.numbers if not math.isfinite(number.value)]:
            problem, failed = f"gave NaN or infinity for {', '.join(wrong)}", True
    except EbclabError as error:
        problem = str(error)
    except Exception as error:  # whatever it is, the other groups continue
        _log.exception("%s: failed", name)
        problem, failed = f"{type(error).__name__}: {error}", True
    return GroupResult(name, key, _NOTHING if problem else findings, time.monotonic() - began, problem, failed)


def _identity(measured: MeasuredSet) -> list[str | bool]:
    return [measured.name, measured.digest, measured.tests_held_out]
