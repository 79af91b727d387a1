"""Choosing among candidates by private runs; the certificate of the released run states the whole cost.

Candidates are whatever may lead to other votes or to another student: hyper-parameters of the teachers, their number, settings of
the student. Each run draws a candidate, asks a session with fresh noise, and is scored; only the best run leaves this room. The
number of runs and the other runs' answers stay secret; the cost relies on that (`privacy.selection`).
"""

from __future__ import annotations

import dataclasses
import math
import secrets
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from teacher_student.aggregation.entries import check_claim
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import Release
from teacher_student.aggregation.session import Session, SessionOptions
from teacher_student.aggregation.votes import voters
from teacher_student.arguments import ArgumentError, choice, listed, positive_integer
from teacher_student.mechanisms.noise import Noise
from teacher_student.privacy.registry import LABELS
from teacher_student.privacy.selection import PrivateSelection, calibrate_selection

NOT_COVERED = (
    "hyper-parameters tuned on the private data, except for the choice between these candidates",
    "the number of runs, and so the time that the selection took",
    "the evaluation set, where it is private",
)

Score = Callable[[int, Release], float]


class Selected(NamedTuple):
    """The best run: its candidate, and what it released."""

    candidate: int
    release: Release


class _Run(NamedTuple):
    value: float
    candidate: int
    release: Release


def select_privately(
    candidates: Sequence[object],
    score: Score,
    *,
    num_classes: int,
    epsilon: float,
    delta: float,
    repetitions: int = 5,
    mechanism: str = "stability",
    cutoff: int | None = 50,
    num_teachers: int | None = None,
    noise: Noise | None = None,
    neighbours: str = "add_remove",
    account: Account | None = None,
    **options: Any,
) -> Selected:
    """Release the labels of the best of several private runs, and the number of their candidate.

    Args:
        candidates: each one's votes per class on the same public queries, (num_queries, num_classes). Private.
        score: called with a candidate's number and its release; larger is better, NaN is worst. It may use these and public data,
            such as a student's accuracy on public labelled points, but nothing private.
        num_classes: size of the public label set.
        epsilon: for everything: all runs and the choice.
        delta: for everything: all runs and the choice.
        repetitions: mean number of runs, at least 2; the actual number is geometric, and stays secret.
        mechanism: of each run.
        cutoff: of each run (stability mechanisms).
        num_teachers: how many vote at most, in any candidate, a public number. Must be given.
        noise: None for the operating system's entropy; anything else is certified as not private.
        neighbours: add_remove, replace_one or label_only.
        account: the private data's account in a ledger; the whole cost is entered before the first run.
        options: of the mechanism's calibration.

    Raises:
        ArgumentError: bad input, or a cost that the account does not cover; nothing was spent.
    """
    classes = positive_integer("num_classes", num_classes)
    choice("mechanism", mechanism, LABELS)
    votes = voters(classes, num_teachers, neighbours, options.get("vote_change"))
    tables = [votes.check(None, counts) for counts in listed("candidates", candidates)]
    if len({len(table) for table in tables}) != 1:
        raise ArgumentError(f"candidates must be one or more tables of votes on the same queries, got {len(tables)} that differ")
    paying = SessionOptions(None, noise, neighbours, account)
    selection = calibrate_selection(
        mechanism, epsilon=epsilon, delta=delta, repetitions=repetitions, cutoff=cutoff, num_queries=len(tables[0]), **options
    )
    check_claim(selection, epsilon, delta)
    name, share = str(uuid.uuid4()), delta / selection.repetitions
    if account is not None:
        account.pay(name, selection, neighbours=neighbours, epsilon=epsilon, delta=delta)
    claim: dict[str, Any] = {"epsilon": selection.session.epsilon(share), "delta": share}

    def run() -> _Run:
        chosen = secrets.randbelow(len(tables))
        with Session(selection.session, votes, Release, **claim, options=dataclasses.replace(paying, account=None)) as session:
            release = session.ask_once(tables[chosen])
        value = float(score(chosen, release))
        return _Run(-math.inf if math.isnan(value) else value, chosen, release)

    best = run()
    while another_run(selection):
        best = max(best, run(), key=lambda made: made.value)
    stated = best.release.certificate
    facts = {"hyperparameters": selection.mechanism, "candidates": len(tables), "candidate": best.candidate}
    certificate = dataclasses.replace(
        stated,
        epsilon=float(epsilon),
        delta=float(delta),
        mechanism=selection.mechanism,
        parameters=selection,
        used={**stated.used, **facts},
        composition=account.composition(name) if account is not None else (),
        not_covered=NOT_COVERED,
    )
    return Selected(best.candidate, dataclasses.replace(best.release, certificate=certificate))


def another_run(selection: PrivateSelection) -> bool:
    """Return whether there is one more run, with probability 1 - 1 / repetitions exactly, by the operating system's entropy."""
    return secrets.randbelow(selection.repetitions) > 0
