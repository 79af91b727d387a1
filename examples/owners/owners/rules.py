"""What an owner's answer counts as: public rules. Nothing here knows Flower.

| an owner | counts as |
|---|---|
| answers in time, as it was asked | its votes |
| sends an error, another shape, another type, a value that is no class, or the answer to another question | abstaining on all |
| answers twice | abstaining on all |
| was not asked | not there |
| does not answer in time | not there; if fewer than `least` owners are there, the round is repeated |

So a column of votes depends on that owner's own answer alone: one record (or one owner) still moves one column. Whether an owner
is there does not depend on what it sends, so a private record cannot make a round be repeated, and a broken model cannot either.
Nothing is spent before the session is asked, and the session is asked once enough owners are there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from teacher_student.arguments import (
    ArgumentError,
    choice,
    number_at_least_zero,
    positive_integer,
    positive_number,
    probability,
    true_or_false,
)
from teacher_student.labels import ABSTAIN

UNITS = {"record": ("add_remove", "replaced"), "owner": ("zero_out", "withdrawn")}
"""For whom the guarantee protects: the neighbouring relation, and what a neighbour does to a vote (docs/privacy.md)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The public settings of a question; `pyproject.toml` says what each is. Everybody checks them, nobody trusts them."""

    name: str
    folder: str
    points: str
    ask: int
    send_points: bool
    classes: int
    owners: int
    least: int
    attempts: int
    deadline: float
    fit: str
    mechanism: str
    epsilon: float
    delta: float
    cutoff: int
    unit: str
    dataset: str
    budget_epsilon: float
    budget_delta: float
    secure: bool
    noise: str
    teachers: int
    colluding: int
    skew: float

    def __post_init__(self) -> None:
        if not self.name.replace("-", "").replace("_", "").isalnum():
            raise ArgumentError(f"name must be letters, digits, - and _, got {self.name!r}")
        positive_integer("ask", self.ask)
        positive_integer("classes", self.classes)
        positive_integer("least", self.least, maximum=positive_integer("owners", self.owners))
        positive_integer("attempts", self.attempts)
        positive_number("deadline", self.deadline)
        positive_number("epsilon", self.epsilon)
        probability("delta", self.delta)
        positive_integer("cutoff", self.cutoff, minimum=0)
        choice("unit", self.unit, UNITS)
        number_at_least_zero("budget_epsilon", self.budget_epsilon)
        true_or_false("secure", self.secure)
        choice("noise", self.noise, ("server", "owners"))
        positive_integer("teachers", self.teachers)
        if self.teachers > 1 and not (self.secure and self.noise == "owners"):
            raise ArgumentError(f"teachers must be 1 unless owners add the noise to sums (secure, noise), got {self.teachers}")
        if self.noise == "owners" and (not self.secure or self.unit != "record"):
            raise ArgumentError("noise must be the server's unless secure is true and unit is record, got owners")
        if self.noise == "owners":
            positive_integer("colluding", self.colluding, minimum=0, maximum=self.least - 1)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Settings:
        """Return the settings of a run's configuration; refuse one that lacks any."""
        names = [field.name for field in dataclasses.fields(cls)]
        if missing := [name for name in names if name not in config]:
            raise ArgumentError(f"{missing[0]} must be in the run's configuration, got {', '.join(sorted(config)) or 'nothing'}")
        return cls(**{name: config[name] for name in names})

    def question(self, points_digest: str) -> str:
        """Return the name of the question: a hash of its points and of everything that the owners' answers depend on."""
        parts = [self.name, points_digest, self.classes, self.owners, self.least, self.epsilon, self.delta, self.unit, self.noise]
        parts += [self.mechanism, self.teachers, self.colluding, self.fit, self.secure, self.dataset]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came from one owner.

    Attributes:
        owner: who sent it; Flower has authenticated this.
        question: the question that it says it answers; None for an error.
        votes: what it holds, whatever that is.
    """

    owner: int
    question: str | None
    votes: object


def votes_of(answer: Answer, question: str, num_queries: int, classes: int) -> NDArray[np.int16] | None:
    """Return an owner's votes, shape (num_queries,), or None if they count as an abstention on everything."""
    votes = answer.votes
    if answer.question != question or not isinstance(votes, np.ndarray) or votes.shape != (num_queries,):
        return None
    if not np.issubdtype(votes.dtype, np.integer) or int(votes.min()) < ABSTAIN or int(votes.max()) >= classes:
        return None
    return votes.astype(np.int16)


def gather(
    answers: Sequence[Answer], asked: Sequence[int], question: str, settings: Settings, num_queries: int
) -> NDArray[np.int16] | None:
    """Return votes, shape (num_queries, owners), or None if too few owners are there and the round has to be repeated.

    An owner's column is its place in `asked`; columns of owners that are not there are abstentions.

    Raises:
        ArgumentError: more owners than the public number.
    """
    if len(asked) > settings.owners:
        raise ArgumentError(f"owners must be at least the {len(asked)} that are connected, got {settings.owners}")
    sent = Counter(answer.owner for answer in answers)
    if len(set(asked) & set(sent)) < settings.least:
        return None
    table = np.full((num_queries, settings.owners), ABSTAIN, dtype=np.int16)
    for answer in answers:
        if answer.owner in asked and sent[answer.owner] == 1:
            votes = votes_of(answer, question, num_queries, settings.classes)
            if votes is not None:
                table[:, asked.index(answer.owner)] = votes
    return table


def vote(predictions: object, num_queries: int, classes: int) -> NDArray[np.int16]:
    """Return an owner's predictions as votes; a prediction that is no class becomes an abstention."""
    given = np.asarray(predictions)
    if given.shape != (num_queries,) or not np.issubdtype(given.dtype, np.integer):
        return np.full(num_queries, ABSTAIN, dtype=np.int16)
    return np.where((given >= 0) & (given < classes), given, ABSTAIN).astype(np.int16)
