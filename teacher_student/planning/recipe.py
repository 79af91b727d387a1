"""A recipe for a run of which only public sizes are known: mechanism, number of teachers, view and student.

A recipe is a mapping of settings of `teacher-student run`, so it can be read, repeated on the command line and overridden.
`PrivateClassifier` takes it.
"""

from __future__ import annotations

from teacher_student.arguments import choice, positive_integer, positive_number, probability
from teacher_student.privacy.gaussian import gaussian_mu

KINDS = ("table", "estimators", "images")
_MOST_TEACHERS, _MOST_COMPONENTS, _RECORDS_PER_ESTIMATOR = 16_000, 105, 20
_STEPS, _BATCH, _MOST_EPOCHS = 320, 256, 24
"""Steps of the student in a round, as many as 8 epochs of 10,000 points; few points are learned in fewer steps."""


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
