"""`label`: predictions of any models in, private labels and a certificate out, in one call."""

from __future__ import annotations

import os
from typing import Any

from teacher_student.aggregation.label_session import LabelSession, check_votes
from teacher_student.aggregation.ledger import Account
from teacher_student.aggregation.release import Release
from teacher_student.arguments import positive_integer
from teacher_student.mechanisms.noise import Noise
from teacher_student.planning.preflight import mostly_noise, warn, weak_promise
from teacher_student.planning.request import Request


def label(
    predictions: object = None,
    *,
    counts: object = None,
    num_classes: int,
    epsilon: float,
    delta: float,
    mechanism: str = "stability",
    cutoff: int | None = 50,
    num_teachers: int | None = None,
    state: str | os.PathLike[str] | None = None,
    noise: Noise | None = None,
    neighbours: str = "add_remove",
    account: Account | None = None,
    population: int | None = None,
    hyperparameters: str = "fixed",
    **options: Any,
) -> Release:
    """Release private labels for queries on which disjointly trained teachers voted.

    The guarantee rests on one rule: one record (or user) reaches one teacher. The release then is (epsilon, delta)-differentially
    private towards any one of them, whatever the teachers are.

    Args:
        predictions: shape (num_queries, num_teachers), class indices, -1 where a teacher abstains.
        counts: instead of predictions: votes per class, shape (num_queries, num_classes).
        num_classes: size of the public label set.
        epsilon: for all labels together, above 0.
        delta: for all labels together, strictly between 0 and 1.
        mechanism: stability, stability_paper, stability_redraw, stability_laplace, gnmax, confident_gnmax, lnmax or exponential.
        cutoff: paid non-answers before the session halts; None lets the planner choose it from public sizes.
        num_teachers: how many vote, a public number. Must be given: no array tells its columns from its rows. Of as many queries
            as teachers a transposed table passes; see to the order of its axes yourself.
        state: a file that keeps the session (see `LabelSession`): called again after a kill, with the same file and queries, the
            labels that were given stay as they were. None for memory.
        noise: None for the operating system's entropy; anything else is for studies and is certified as not private.
        neighbours: add_remove, replace_one or label_only.
        account: the private data's account in a ledger; refused before any noise is drawn if it is exceeded.
        population: public order of magnitude of the number of records; a delta above 1 / population is warned of.
        hyperparameters: how they were chosen: fixed, or on a public_surrogate; the certificate says so.
        options: further options of the calibration, such as threshold_ratio.

    Returns:
        labels, shape (num_queries,), and their certificate.

    Raises:
        ArgumentError: bad input. Nothing was spent: no noise is drawn before all is checked.

    Warns:
        PrivacyWarning: before any noise is drawn, where public numbers show that epsilon or delta protects next to nobody, or
            that labels of a noisy maximum would be mostly noise.

    >>> votes = [[0] * 3990 + [1] * 10, [0] * 2000 + [1] * 2000]
    >>> release = label(votes, num_classes=2, epsilon=1.0, delta=1e-5, num_teachers=4000)
    >>> release.labels, release.certificate.epsilon
    (array([ 0, -1]), 1.0)
    """
    classes = positive_integer("num_classes", num_classes)
    votes = check_votes(predictions, counts, classes, num_teachers)
    session = LabelSession(
        classes,
        epsilon,
        delta,
        cutoff,
        mechanism,
        state=state,
        num_queries=len(votes),
        num_teachers=num_teachers,
        noise=noise,
        neighbours=neighbours,
        account=account,
        hyperparameters=hyperparameters,
        **options,
    )
    parameters = session.mechanism.parameters
    assert num_teachers is not None  # check_votes saw to it
    sizes = Request(num_teachers=num_teachers, num_queries=len(votes), epsilon=epsilon, delta=delta, num_classes=max(2, classes))
    warn(weak_promise(epsilon, delta, population) + mostly_noise(parameters, sizes))
    session.ask(votes, None if state is None else range(len(votes)))
    return session.release()
