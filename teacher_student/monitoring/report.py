"""`report.html`: one file that opens offline and says what was released, at what price, and what may be published."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from teacher_student.monitoring import plots

SCORE_NAMES = {
    "scores": "released score",
    "fractions": "share of the votes, with noise",
    "mean scores": "mean score, in units of the norm, with noise",
    "gradient rows": "mean gradient of a weight, with noise",
}
"""Axis titles of released numbers, by the kind of answers."""

COST, CLASSES, GALLERY = "Labels and what they cost", "Released labels by class", "Public images and their released labels"
LOSS, ACCURACY, CONFUSION = "The student's training loss", "Accuracy on public evaluation data", "Where the student is right"
GAPS, SHARES = "Gap between first and second", "Share of votes for the winner"
RECORDS, SINGLE = "Records per shard", "Accuracy of single teachers"
CAPTIONS = {
    COST: "Queries from the first to the last. Labels cost nothing here; a refusal does, and at the cutoff the session ends.",
    CLASSES: "A class without labels is one that the student cannot know.",
    GALLERY: "The student learned from points like these. Labels may be wrong.",
    LOSS: "Falls while the student learns. It is measured on released labels, and says nothing of new points.",
    ACCURACY: "The student should be well above a model that always says the largest class. The thin line is a 95 % interval.",
    CONFUSION: "Rows add up to 100 percent; the diagonal is what the student gets right.",
    GAPS: "Queries far to the right are clear and can be answered in private; those near 0 are not.",
    SHARES: "At 100 percent all teachers agree.",
    RECORDS: "A teacher with few records is weak. Shards are chosen by a secret key, so they differ in size.",
    SINGLE: "What the owner of one shard reaches without the others.",
}
"""A sentence under each figure."""

_Z = 1.959964
"""Two-sided 95 % quantile of the normal law."""


def interval(share: float, number: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of `number` rows (Wilson 1927).

    >>> tuple(round(end, 3) for end in interval(0.5, 100))
    (0.404, 0.596)
    """
    centre, width = share + _Z**2 / (2 * number), _Z * math.sqrt(share * (1 - share) / number + (_Z / number) ** 2 / 4)
    return max(0.0, (centre - width) / (1 + _Z**2 / number)), min(1.0, (centre + width) / (1 + _Z**2 / number))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleasedFacts:
    """The contents of the publishable report: public settings and released values, nothing else.

    Attributes:
        name: of the experiment.
        settings: public settings by name, as shown in the table.
        choices: public settings by their names in the config, by which TensorBoard compares the runs of a sweep.
        certificate: the certificate's JSON as a mapping.
        answers: the kind of answers: labels, scores, fractions or mean scores.
        file: name of their table.
        labels: (num_queries,) released labels, or None.
        scores: (num_queries,) released scores or (num_queries, num_classes) noisy shares of the votes, NaN where not answered; or
            None. Either labels or scores are given.
        cutoff: units that the session could pay, or None where the mechanism has no cutoff.
        class_names: one for each class.
        curve: the student's training loss by epoch; empty where nothing was answered, so that there is no student.
        metrics: the student's figures on public evaluation data by name; empty without such data.
        majority: share of the largest class in the public evaluation data, or None.
        confusion: (num_classes, num_classes) counts on public evaluation data, or None.
        about: what a reader asks first, by name: who is protected, the data, the release, the version.
        alerts: what speaks against the release, in sentences, from public and released numbers.
        recorded: whether a ledger knows the earlier releases on the same data.
        rounds: how often the same public points were asked.
        images: for each class a few public images with its released label, (n, channels, height, width); empty without images.
    """

    name: str
    settings: Mapping[str, object]
    choices: Mapping[str, float | str | bool]
    certificate: Mapping[str, Any]
    answers: str
    file: str
    labels: npt.NDArray[np.int64] | None = None
    scores: npt.NDArray[np.float64] | None = None
    cutoff: int | None
    class_names: Sequence[str]
    curve: Sequence[float]
    metrics: Mapping[str, float]
    majority: float | None
    confusion: npt.NDArray[np.int64] | None
    about: Mapping[str, str] = dataclasses.field(default_factory=dict)
    alerts: Sequence[str] = ()
    recorded: bool = True
    rounds: int = 1
    images: Sequence[npt.NDArray[np.float32]] = ()

    @property
    def asked(self) -> int:
        """Number of queries."""
        return len(self.labels if self.labels is not None else self.scores)  # type: ignore[arg-type]

    @property
    def answered(self) -> int:
        """Number of queries that were answered."""
        if self.labels is not None:
            return int((self.labels >= 0).sum())
        return int(np.isfinite(np.asarray(self.scores)).reshape(self.asked, -1).all(axis=1).sum())

    @property
    def total(self) -> tuple[float, float]:
        """Epsilon and delta of this release and the earlier ones on the same data that its ledger knows."""
        all_of_them = [self.certificate, *self.certificate["composition"]]
        return math.fsum(one["epsilon"] for one in all_of_them), math.fsum(one["delta"] for one in all_of_them)

    @property
    def suspicion(self) -> float:
        """Highest probability, up to delta, to which all recorded releases raise a suspicion of one half."""
        return 1 / (1 + math.exp(-self.total[0]))

    @property
    def evaluated(self) -> int:
        """Number of rows of the public evaluation data."""
        return 0 if self.confusion is None else int(self.confusion.sum())

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """The 95 % interval of the student's accuracy."""
        return interval(self.metrics["accuracy"], max(1, self.evaluated))

    @property
    def finite_scores(self) -> npt.NDArray[np.float64]:
        """The scores of the queries that were answered, in one row."""
        scores = np.asarray(self.scores, dtype=np.float64)
        return scores[np.isfinite(scores)]

    @functools.cached_property
    def figures(self) -> dict[str, Figure]:
        """The publishable figures by title; report and TensorBoard have the same."""
        figures: dict[str, Figure] = {}
        if self.labels is not None and self.cutoff is not None:
            figures[COST] = plots.spend(self.labels, self.cutoff)
        if self.labels is not None and self.answered:
            figures[CLASSES] = plots.released_classes(self.labels, self.class_names)
        if any(map(len, self.images)):
            figures[GALLERY] = plots.gallery(self.images, self.class_names)
        if self.scores is not None and self.answered:
            name = SCORE_NAMES.get(self.answers, self.answers)
            figures[f"Released {self.answers}"] = plots.histogram(self.finite_scores, name, self.answers)
        if self.curve:
            figures[LOSS] = plots.curve(self.curve, "epoch", "mean loss (nats)")
        if self.majority is not None:
            shares = {"student": self.metrics["accuracy"], "majority class": self.majority}
            figures[ACCURACY] = plots.bars(shares, "accuracy", self.accuracy_interval)
        if self.confusion is not None:
            figures[CONFUSION] = plots.confusion(self.confusion, self.class_names)
        return figures


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateFacts:
    """The contents of the report under `private/`. It must not be published.

    Attributes:
        name: of the experiment.
        models: for each model, such as the non-private one, its figures on evaluation data by name.
        gaps: (num_queries,) top minus second; empty if nothing is voted on.
        winners_share: (num_queries,) share of the teachers' votes that the winner has.
        shard_sizes: (num_teachers,); empty if every record is a teacher.
        teacher_accuracy: of each teacher that has records, on evaluation data, or None.
        empty: number of shards without records.
        abstaining: number of teachers that abstain on every point, those without records among them; None where that failed.
        evaluated: number of rows of the evaluation data.
    """

    name: str
    models: Mapping[str, Mapping[str, float]]
    gaps: npt.NDArray[np.int64]
    winners_share: npt.NDArray[np.float64]
    shard_sizes: npt.NDArray[np.int64]
    teacher_accuracy: npt.NDArray[np.float64] | None
    empty: int
    abstaining: int | None
    evaluated: int = 0

    @functools.cached_property
    def figures(self) -> dict[str, Figure]:
        """The figures that must stay private by title."""
        figures: dict[str, Figure] = {}
        if len(self.gaps):
            lead = plots.histogram(self.gaps, "lead of the winner (votes)", "queries")
            share = plots.histogram(self.winners_share, "share of the votes", "queries", shares=True)
            figures |= {GAPS: lead, SHARES: share}
        if len(self.shard_sizes):
            figures[RECORDS] = plots.histogram(self.shard_sizes, "records of one teacher", "teachers")
        if self.teacher_accuracy is not None:
            figures[SINGLE] = plots.histogram(self.teacher_accuracy, "accuracy", "teachers", shares=True)
        return figures


def _render(template: str, **values: object) -> str:
    environment = Environment(loader=PackageLoader("teacher_student.monitoring"), autoescape=True, undefined=StrictUndefined)
    return environment.get_template(template).render(palette=plots.PALETTE, captions=CAPTIONS, interval=interval, **values)


def write_report(path: Path, facts: ReleasedFacts) -> None:
    """Write the publishable report to `path`."""
    figures = {title: plots.svg(figure, title) for title, figure in facts.figures.items()}
    times = f"{Decimal(facts.certificate['epsilon']).exp():.3g}"  # a float overflows above an epsilon of 709
    # 1 - the smallest double would be shown as 100 %, which no guarantee reaches
    suspicion = f"{100 * facts.suspicion:.3g}" if facts.suspicion < 0.9995 else "more than 99.9"
    text = _render(
        "report.html.j2", facts=facts, certificate=facts.certificate, times=times, suspicion=suspicion, figures=figures
    )
    path.write_text(text, encoding="utf-8")


def write_private_report(path: Path, facts: PrivateFacts) -> None:
    """Write the diagnostics that must stay private to `path`."""
    figures = {title: plots.svg(figure, title) for title, figure in facts.figures.items()}
    columns = list(dict.fromkeys(name for model in facts.models.values() for name in model))
    path.write_text(_render("private_report.html.j2", facts=facts, figures=figures, columns=columns), encoding="utf-8")
