"""From votes to labels and a student, on the server: the project's session, ledger and release. Nothing here knows Flower.

The session enters its whole cost into the ledger before any noise is drawn, and writes every answer down before it returns it. A
server that is killed and started again finds its answers under the names of the queries, so no query is answered twice with
different noise.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import teacher_student as ts
from owners.rules import UNITS, Settings
from teacher_student.aggregation.ledger import Account, Ledger
from teacher_student.aggregation.release import bind_files
from teacher_student.privacy import MechanismSpec

STUDENT = "student.npz"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the server keeps one question."""

    settings: Settings

    @property
    def folder(self) -> Path:
        """The question's own folder, of mode 0700."""
        path = Path(self.settings.folder).expanduser() / self.settings.name
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    @property
    def state(self) -> Path:
        """The session's state: private."""
        return self.folder / "session.sqlite"

    @property
    def release(self) -> Path:
        """What may be published."""
        return self.folder / "release"

    @property
    def account(self) -> Account:
        """The account of the owners' data in the server's ledger."""
        given = self.settings
        budget = {"epsilon": given.budget_epsilon, "delta": given.budget_delta} if given.budget_epsilon else {}
        return Ledger(self.folder.parent / "ledger.sqlite").account(given.dataset, **budget)


def session_of(settings: Settings, num_queries: int, **kept: Any) -> ts.LabelSession:
    """Open the session of a question, or open it again. Its cost is in the ledger of an account when this returns.

    Args:
        settings: of the question.
        num_queries: of the question.
        kept: state and account.
    """
    neighbours, change = UNITS[settings.unit]
    if change != "replaced":
        kept["vote_change"] = change
    given = (settings.classes, settings.epsilon, settings.delta, settings.cutoff or None, settings.mechanism)
    sizes = {"num_teachers": settings.owners, "num_queries": num_queries}
    return ts.LabelSession(*given, neighbours=neighbours, **sizes, **kept)


def kept_session(settings: Settings, num_queries: int) -> ts.LabelSession:
    """Open the server's own session of a question."""
    return session_of(settings, num_queries, state=Place(settings).state, account=Place(settings).account)


def spec_of_labels(settings: Settings, num_queries: int) -> MechanismSpec:
    """Return the mechanism that answers a question; everybody computes it from public settings."""
    with session_of(settings, num_queries) as session:
        return session.mechanism.parameters


def recorded(settings: Settings, num_queries: int) -> ts.Release | None:
    """Return the release of a question that was answered before, or None. Opens no session that was not opened before."""
    if not Place(settings).state.exists():
        return None
    with kept_session(settings, num_queries) as session:
        release = session.release()
        return release if len(release.labels) == num_queries else None


def answer(
    settings: Settings, votes: NDArray[np.integer] | None = None, *, counts: NDArray[np.integer] | None = None
) -> ts.Release:
    """Return the labels of all queries: those that `ts.label` gives for the same votes and the same noise.

    Args:
        settings: of the question.
        votes: shape (num_queries, owners), -1 where an owner abstains.
        counts: instead of votes, their number for each class, shape (num_queries, classes).
    """
    given = votes if counts is None else counts
    assert given is not None
    with kept_session(settings, len(given)) as session:
        session.answer(votes, counts=counts, query_ids=range(len(given)))
        return session.release()


class Student:
    """A linear student. It learns from released labels and public points alone, so it may be published."""

    def __init__(self, weights: NDArray[np.float64], offsets: NDArray[np.float64], classes: NDArray[np.int64]) -> None:
        self.weights, self.offsets, self.classes = weights, offsets, classes

    @classmethod
    def learn(cls, points: NDArray[np.float32], labels: NDArray[np.int64], shares: NDArray[np.float64] | None = None) -> Student:
        """Return a student of the labelled points, or of noisy shares of votes, shape (points, classes); others are left out."""
        weight = None
        if shares is not None:  # every class of a point, weighted with its noisy share
            share = np.clip(np.nan_to_num(shares), 0, 1)
            labels, weight = np.tile(np.arange(share.shape[1]), len(points)), share.ravel()
            points = np.repeat(points, share.shape[1], axis=0)
            points, labels, weight = points[weight > 0], labels[weight > 0], weight[weight > 0]
        points, labels = points[labels >= 0], labels[labels >= 0]
        known = np.unique(labels)
        if len(known) < 2:  # nothing to tell apart
            return cls(np.zeros((1, points.shape[1])), np.zeros(1), known if len(known) else np.zeros(1, dtype=np.int64))
        model = LogisticRegression(max_iter=500).fit(points, labels, sample_weight=weight)
        if len(known) == 2:  # scikit-learn keeps one row for two classes
            return cls(np.vstack([-model.coef_, model.coef_]) / 2, np.array([-1, 1]) * model.intercept_ / 2, known)
        return cls(model.coef_, model.intercept_, known)

    def predict(self, points: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return class indices, shape (n,)."""
        return self.classes[(points @ self.weights.T + self.offsets).argmax(axis=1)]

    def save(self, path: Path) -> None:
        """Write the student as plain arrays."""
        np.savez(path, weights=self.weights, offsets=self.offsets, classes=self.classes)

    @classmethod
    def load(cls, path: Path) -> Student:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(arrays["weights"], arrays["offsets"], arrays["classes"])


def keep(settings: Settings, release: Any, student: Student, said: Mapping[str, Any] | None = None) -> Path:
    """Write release and student, bind the certificate to both, and return the folder. Twice is as good as once.

    Args:
        settings: of the question.
        release: answers and certificate.
        student: of the answers.
        said: further public facts for the reader of the release, as JSON.
    """
    folder = Place(settings).release
    if not (folder / "certificate.json").exists():
        release.save(folder)
    student.save(folder / STUDENT)
    if said is not None:
        (folder / "noise.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    bind_files(folder)
    return folder
