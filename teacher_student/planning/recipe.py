"""What to take where nothing was chosen: `recipe` for a whole run, `choose_mechanism` for votes that exist already.

Both know public sizes alone. A recipe is a mapping of settings of `teacher-student run`, so it can be read, repeated on the
command line and overridden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from teacher_student.arguments import ArgumentError, choice, positive_integer, positive_number, probability
from teacher_student.planning.local_votes import expected_votes
from teacher_student.planning.report import limit_in_words
from teacher_student.planning.request import Request, choose_parameters, grid
from teacher_student.planning.search import PublicGoal, PublicVotes
from teacher_student.privacy.gaussian import gaussian_mu
from teacher_student.privacy.parameters import LabelSpec

AUTO = "auto"
"""The name that leaves the choice of a mechanism to this module."""

CANDIDATES = ("stability", "exponential", "gnmax")
"""Mechanisms that label most; the others were never more than a twentieth ahead, and confident_gnmax takes minutes to plan."""

AGREEMENT = {2: 1.0}
MANY_CLASSES_AGREEMENT, WRONG = 0.7, 0.1
"""Assumed lead of the plurality on an average point, as in `local_votes`, and the largest share of labels that may differ from
the plurality. Chosen on the published votes of 250 teachers: their mean leads are 0.81 on Adult and 0.62 on MNIST."""

KINDS = ("table", "estimators", "images")
_MOST_TEACHERS, _MOST_COMPONENTS, _RECORDS_PER_ESTIMATOR = 16_000, 105, 20
_STEPS, _BATCH, _MOST_EPOCHS = 320, 256, 24
"""Steps of the student in a round, as many as 8 epochs of 10,000 points; few points are learned in fewer steps."""


class Chosen(NamedTuple):
    """A mechanism with its parameters, and one line that says why."""

    parameters: LabelSpec
    reason: str


def choose_mechanism(request: Request) -> Chosen:
    """Return the mechanism that promises most labels for votes of these public sizes, and how many queries it answers.

    The leads of the pluralities are taken to be spread evenly between 0 and twice `AGREEMENT`, as a share of the teachers. At
    most a tenth of the labels may be expected to differ from the plurality.

    Raises:
        ArgumentError: no mechanism can be had within epsilon and delta.

    >>> sizes = {"num_teachers": 250, "num_queries": 9000, "num_classes": 10}
    >>> print(choose_mechanism(Request(epsilon=1.0, delta=1e-5, **sizes)).reason)
    gnmax, ends after 90 answers: expect about 82 labels that most of 250 teachers say (exponential 68, stability 18)
    """
    share = AGREEMENT.get(request.num_classes, MANY_CLASSES_AGREEMENT)
    votes = PublicVotes(expected_votes(request.num_teachers, request.num_classes, share))
    goal = _Labels(votes, request.num_queries, request.epsilon, request.delta, WRONG, request.vote_change)
    found = []
    for name in CANDIDATES:
        try:
            option = goal.choice(choose_parameters(name, goal))
        except ArgumentError:
            continue
        found.append((goal.acceptable(option.parameters), option.worth, option.parameters))
    if not found:
        raise ArgumentError(f"epsilon must allow one of {', '.join(CANDIDATES)}, got {request.epsilon}")
    (_, worth, best), *others = sorted(found, key=lambda each: each[:2], reverse=True)
    beside = ", ".join(f"{other.mechanism} {value:,.0f}" for _, value, other in others)
    return Chosen(
        best,
        f"{best.mechanism}, ends after {limit_in_words(best)}: expect about {worth:,.0f} labels that most of "
        f"{request.num_teachers:,} teachers say" + (f" ({beside})" if beside else ""),
    )


@dataclasses.dataclass(frozen=True)
class _Labels(PublicGoal):
    """Labels for votes that nobody has seen."""

    @property
    def caps(self) -> Sequence[int]:
        """Caps on answers, a tenth apart."""
        return grid(1, self.num_queries, 1.1)


def why(taken: Mapping[str, str], *, records: int, points: int, epsilon: float) -> str:
    """Return in one line what a recipe has taken, and for which public sizes."""
    mechanism, teachers = taken.get("mechanism", "noisy_scores"), int(taken["teachers.number"])
    seen = f" on at most {taken['data.view.components']} components" if "data.view.components" in taken else ""
    sizes = f"about {records:,} records, {points:,} public points and epsilon {epsilon:g}"
    return f"{mechanism}, {teachers:,} teachers{seen}, for {sizes}"


def recipe(kind: str, *, records: int, points: int, classes: int, epsilon: float, delta: float) -> dict[str, str]:
    """Return settings for a run on records of these public sizes.

    - *Tables*: noisy scores of linear teachers of one step, on public principal components. The noise in a student's logits
      grows with the number of components and falls with the signal: `gaussian_mu(epsilon, delta)` times the number of records.
      So components, rounds and the bound on scores grow with the signal. Almost every teacher has one record or two.
    - *Other estimators* as teachers, which need some records each: noisy fractions of their votes, on the same components.
    - *Images*: local votes on components. Each record votes on the public points nearest to it.

    The numbers were chosen on public data: Adult with 2,000, 8,000 and 32,000 records, and scikit-learn's breast cancer, wine and
    digits. They are starting points: `docs/choosing.md` has the studies for single data sets.

    Args:
        kind: one of `KINDS`.
        records: public number of records, or its order of magnitude where the number is private.
        points: number of public points.
        classes: number of classes.
        epsilon: of the release.
        delta: of the release.

    Raises:
        ArgumentError: an unknown kind, or a size that is not positive.

    >>> recipe("table", records=30_000, points=10_000, classes=2, epsilon=1.0, delta=1e-5)["data.view.components"]
    '90'
    """
    choice("kind", kind, KINDS)
    for name, size in {"records": records, "points": points, "classes": classes}.items():
        positive_integer(name, size)
    mu = gaussian_mu(positive_number("epsilon", epsilon), probability("delta", delta))
    scale = (mu * records) ** 0.5
    components = str(min(_MOST_COMPONENTS, max(3, round(scale))))
    if kind == "images":
        return {
            "experiment": "table",
            "data/view": "projection",
            "data.view.up_to_rank": "true",
            "learner": "nearest",
            "learner.votes": "12",
            "mechanism": "noisy_fraction",
            "teachers.number": str(records),
            "student": "mlp",
            "student.settings.propagation": "10.0",
        }
    view = {"data.view.components": components, "data.view.whiten": "0.5" if scale < 50 else "1.0"}
    epochs = str(min(_MOST_EPOCHS, max(8, _STEPS // -(-points // _BATCH))))
    if kind == "estimators":
        return {
            "experiment": "table_scores",
            **view,
            "mechanism": "noisy_fraction",
            "boosting.rounds": "0",
            "teachers.number": str(max(1, min(_MOST_TEACHERS, records // _RECORDS_PER_ESTIMATOR))),
            "student.settings.epochs": epochs,
        }
    return {
        "experiment": "table_scores",
        **view,
        "mechanism.norm": f"{min(1.0, max(0.25, scale / 40)):.2f}",
        "teachers.number": str(min(_MOST_TEACHERS, records)),
        "boosting.rounds": "1" if scale < 20 else "3",
        "student.settings.epochs": epochs,
    }
