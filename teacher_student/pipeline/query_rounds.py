"""Asking one session in rounds: a batch, its labels, a student of all labels so far, the next batch.

Only public features and released labels choose the points, so that the choice is post-processing, and the session answers for
adaptively chosen queries anyway. What was asked is in the session's file, by name: a run that was killed goes on in the middle of
a round with the points that are left of it. The student is a function of the labels before the round and of public seeds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from teacher_student.aggregation.labels import LabelSession
from teacher_student.aggregation.release import Release
from teacher_student.aggregation.statistic import Table
from teacher_student.arguments import Integers
from teacher_student.data import PrivateDataset
from teacher_student.labels import HALTED
from teacher_student.monitoring.console import Advance
from teacher_student.pipeline.rounds import QUERIES_PER_ANSWER
from teacher_student.pipeline.settings import RunSettings
from teacher_student.pipeline.stages import one_process, student_network
from teacher_student.student import Targets, fit_student, next_points, predict_probabilities, resample, targets_from_labels


def ask_in_rounds(
    session: LabelSession, dataset: PrivateDataset, votes: Table, settings: RunSettings, advance: Advance
) -> Release:
    """Ask `session` about public points, named by their positions, until all that are wanted are asked or it halts."""
    batches = settings.queries.batches(len(votes))
    for number, places in enumerate(batches):
        asked, labels = _known(session.release())
        if len(asked) == places.start > 0 and session.halted:
            break
        if len(asked) >= places.stop:
            continue
        labels_before = _at_points(asked[: places.start], labels[: places.start], len(votes))
        open_points = np.setdiff1d(np.arange(len(votes)), asked[: places.start])
        chosen = _choose(dataset, labels_before, open_points, len(places), settings, number)
        fresh = chosen[~np.isin(chosen, asked)][: places.stop - len(asked)]
        for start in range(0, len(fresh), QUERIES_PER_ANSWER):
            part = fresh[start : start + QUERIES_PER_ANSWER]
            session.answer(counts=votes[part], query_ids=part.tolist())
            advance(places.stop - len(fresh) + start + len(part), f"{session.remaining_cutoff:,} payments left")
    return session.release()


def spread(release: Release, num_points: int) -> Integers:
    """Return (num_points,) labels of all public points: those that were not asked are `HALTED`, without a label."""
    return _at_points(*_known(release), num_points)


def _known(release: Release) -> tuple[Integers, Integers]:
    """Return the positions asked so far, in the order of asking, and their labels."""
    names = range(len(release.labels)) if release.queries is None else release.queries
    return np.array([int(name) for name in names], dtype=np.int64), release.labels


def _at_points(asked: Integers, labels: Integers, num_points: int) -> Integers:
    found = np.full(num_points, HALTED, dtype=np.int64)
    found[asked] = labels
    return found


def _choose(
    dataset: PrivateDataset, labels: Integers, open_points: Integers, size: int, settings: RunSettings, number: int
) -> Integers:
    order, predictions = settings.queries.order, None
    if settings.queries.students and (labels >= 0).any():
        targets = targets_from_labels(labels, dataset.num_classes, unanswered=settings.student.unanswered, seed=settings.seed)
        predictions = _predictions(dataset, targets, open_points, settings, number)
    return next_points(order, open_points, size, predictions, (settings.seed, number))


def _predictions(
    dataset: PrivateDataset, targets: Targets, points: Integers, settings: RunSettings, number: int
) -> npt.NDArray[np.float32]:
    """Return (students, points, num_classes) probabilities; of several students each learns from its own resample."""
    network = student_network(settings.student_network, dataset.student_points, dataset.num_classes)
    found = []
    for member in range(settings.queries.students):
        own = resample(targets, (settings.seed, number, member)) if settings.queries.students > 1 else targets
        student = fit_student(
            network,
            dataset.student_points,
            own,
            settings.student,
            seed=settings.seed + member,
            trainer_options=one_process(settings.trainer),
        )
        found.append(predict_probabilities(student.publishable, dataset.student_points[points]))
    return np.stack(found)
