"""Exact divergence of a threshold mechanism between neighbours, by summation over transcripts.

The mechanism, as the audit sees it (docs/privacy.md, "The stability mechanisms"; all integers):

    z <- threshold law                      (drawn anew after every unanswered query if `redraw`)
    for each query with winner and distance, while fewer than `cutoff` have gone unanswered:
        nu <- query law
        distance + nu > threshold + z  ->  release the winner's label
        otherwise                      ->  release "unanswered"

Given z the queries are independent. Without `redraw` the likelihood of a transcript depends only on how many queries of each
*kind* (each distinct pair of distances) were answered and how many were not, so transcripts are counted, not listed. With
`redraw` a transcript consists of independent runs, each of which ends with an unanswered query.

A query whose winner differs between D and D' is *split*: once it is answered, the two output laws have nothing in common, so
the whole mass of that transcript counts, whatever follows.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from teacher_student.arguments import ArgumentError, Floats, choice, positive_integer, positive_number
from teacher_student.auditing.laws import BOTTOMS, QUERY_LAWS, THRESHOLD_LAWS, IntegerLaw
from teacher_student.auditing.outcomes import Outcomes, joined, product

LOWEST = -1e4
"""Stands for log 0: e^(-10000) is 0 in double precision, and 0 times it stays 0."""


@dataclasses.dataclass(frozen=True)
class QueryPair:
    """One query as D and D' see it."""

    winner: int
    distance: int
    other_winner: int
    other_distance: int

    @property
    def split(self) -> bool:
        """Whether an answer tells D from D' with certainty."""
        return self.winner != self.other_winner


@dataclasses.dataclass(frozen=True)
class ThresholdLaw:
    """A threshold mechanism as laws alone: what it draws, at which scale, and when it stops.

    `reuse` describes a mutant that draws one query noise for the whole session (between redraws).
    """

    threshold_noise: str
    query_noise: str
    threshold_scale: float
    query_scale: float
    threshold: int
    cutoff: int
    redraw: bool = False
    reuse: bool = False

    def __post_init__(self) -> None:
        choice("threshold_noise", self.threshold_noise, THRESHOLD_LAWS)
        choice("query_noise", self.query_noise, BOTTOMS)
        positive_integer("cutoff", self.cutoff)
        positive_integer("threshold", self.threshold, minimum=0)
        for name in ("threshold_scale", "query_scale"):
            positive_number(name, getattr(self, name))

    @classmethod
    def of(cls, parameters: Any) -> ThresholdLaw:
        """Return the law that `parameters` (a ThresholdParameters) promise."""
        names = ("threshold_noise", "query_noise", "threshold", "cutoff", "redraw")
        kept = {name: getattr(parameters, name) for name in names}
        return cls(**kept, threshold_scale=float(parameters.threshold_scale), query_scale=float(parameters.query_scale))

    def noisy_threshold(self) -> IntegerLaw:
        """Return the law of z, minus the query noise if that is reused."""
        reused = self.query_noise if self.reuse else ""
        return _threshold_law(self.threshold_noise, self.threshold_scale, reused, self.query_scale)

    def log_unanswered(self, distance: int) -> tuple[Floats, Floats]:
        """Return log P(unanswered | z) and log P(answered | z) for each z in the support of the noisy threshold, (n,)."""
        return _log_unanswered(self, distance)


@functools.lru_cache(maxsize=64)
def _threshold_law(kind: str, scale: float, reused: str, query_scale: float) -> IntegerLaw:
    law = THRESHOLD_LAWS[kind](scale)
    return law.minus(QUERY_LAWS[reused](query_scale)) if reused else law


@functools.lru_cache(maxsize=1024)
def _log_unanswered(law: ThresholdLaw, distance: int) -> tuple[Floats, Floats]:
    bottom = BOTTOMS["none" if law.reuse else law.query_noise]
    chance = bottom(distance - law.threshold - law.noisy_threshold().support, law.query_scale)
    with np.errstate(divide="ignore"):
        unanswered = np.log(chance)
        answered = np.log(-np.expm1(unanswered))
    return np.maximum(unanswered, LOWEST), np.maximum(answered, LOWEST)


def outcomes(
    law: ThresholdLaw,
    queries: Sequence[QueryPair],
    *,
    restart: bool = False,
    turns: Sequence[tuple[int, int]] | None = None,
    width: float = 1e-5,
) -> Outcomes:
    """Return what the mechanism can emit on the two neighbours.

    Args:
        law: the mechanism.
        queries: what is asked, in order.
        restart: whether an adaptive asker returns to the first query after every unanswered one.
        turns: instead of `restart`, for each query the index of the next after an answer and after none; len(queries) ends.
        width: bin width of the log-ratios if transcripts must be merged (only under `redraw`, beyond 200,000 of them).
    """
    if not queries:
        raise ArgumentError("queries must not be empty")
    if turns is None:
        turns = [(step + 1, 0 if restart else step + 1) for step in range(len(queries))]
    if len(turns) != len(queries) or any(answered <= step for step, (answered, _) in enumerate(turns)):
        raise ArgumentError("turns must lead on from every query after an answer")
    return _by_runs(law, queries, turns, width) if law.redraw else _by_counting(law, queries, turns)


def _by_counting(law: ThresholdLaw, queries: Sequence[QueryPair], turns: Sequence[tuple[int, int]]) -> Outcomes:
    kinds = list(dict.fromkeys(queries))
    place = [kinds.index(query) for query in queries]
    ends = _count_transcripts(place, [kind.split for kind in kinds], law.cutoff, turns)
    noise = law.noisy_threshold()
    mine = [law.log_unanswered(kind.distance) for kind in kinds]
    theirs = [law.log_unanswered(kind.other_distance) for kind in kinds]
    exponents = np.array([key[0] for key in ends], dtype=np.float64)
    ways = np.array([math.log(count) for count in ends.values()])
    leaked = np.array([key[1] for key in ends])
    probability = _weigh(exponents, ways, mine, noise.mass)
    other = _weigh(exponents, ways, theirs, noise.mass)
    apart = [np.concatenate([probability, np.zeros(leaked.sum())]), np.concatenate([np.where(leaked, 0, other), other[leaked]])]
    return Outcomes(apart[0], apart[1], noise.outside)


def _count_transcripts(
    place: Sequence[int], split: Sequence[bool], cutoff: int, turns: Sequence[tuple[int, int]]
) -> dict[tuple[tuple[int, ...], bool], int]:
    """Return how many transcripts end with each ((unanswered, answered) per kind, leaked)."""
    width = 2 * len(split)
    ends: Counter[tuple[tuple[int, ...], bool]] = Counter()
    alive: Counter[tuple[int, tuple[int, ...]]] = Counter({(0, (0,) * width): 1})
    while alive:
        following: Counter[tuple[int, tuple[int, ...]]] = Counter()
        for (step, counts), ways in alive.items():
            kind, (after_answer, after_none) = place[step], turns[step]
            paid, free = _raised(counts, 2 * kind), _raised(counts, 2 * kind + 1)
            if split[kind] or after_answer == len(place):
                ends[free, split[kind]] += ways
            else:
                following[after_answer, free] += ways
            if sum(paid[::2]) == cutoff or after_none == len(place):
                ends[paid, False] += ways
            else:
                following[after_none, paid] += ways
        alive = following
    return ends


def _raised(counts: tuple[int, ...], place: int) -> tuple[int, ...]:
    return (*counts[:place], counts[place] + 1, *counts[place + 1 :])


def _weigh(exponents: Floats, ways: Floats, logs: list[tuple[Floats, Floats]], mass: Floats) -> Floats:
    """Return sum_z mass(z) * ways * prod_kind p^unanswered (1-p)^answered for every row of `exponents`, in blocks."""
    table = np.array([column for pair in logs for column in pair])
    rows = max(1, 4_000_000 // len(mass))
    blocks = [
        np.exp(exponents[start : start + rows] @ table + ways[start : start + rows, None]) @ mass
        for start in range(0, len(exponents), rows)
    ]
    return np.concatenate(blocks)


def _by_runs(law: ThresholdLaw, queries: Sequence[QueryPair], turns: Sequence[tuple[int, int]], width: float) -> Outcomes:
    """Multiply the outcomes of each run by those of the next, which are independent and start where it stopped."""
    alive = {0: Outcomes(np.ones(1), np.ones(1))}
    ended: list[Outcomes] = []
    runs = {}
    for _ in range(law.cutoff):
        following: dict[int, list[Outcomes]] = {}
        for start, before in alive.items():
            if start not in runs:
                runs[start] = _run(law, queries, turns, start)
            stops, rest = runs[start]
            ended.append(product(before, rest))
            for step, stop in stops.items():
                following.setdefault(turns[step][1], []).append(product(before, stop))
        alive = {after: joined(parts, width=width) for after, parts in following.items()}
        if len(queries) in alive:
            ended.append(alive.pop(len(queries)))
    whole = joined([*ended, *alive.values()], width=width)
    return dataclasses.replace(whole, missing=law.cutoff * law.noisy_threshold().outside)


def _run(
    law: ThresholdLaw, queries: Sequence[QueryPair], turns: Sequence[tuple[int, int]], start: int
) -> tuple[dict[int, Outcomes], Outcomes]:
    """Return the outcome "unanswered first at query j" for each j, and the outcomes that end the session within this run."""
    noise, step = law.noisy_threshold(), start
    survive, other_survive = np.zeros(len(noise.mass)), np.zeros(len(noise.mass))
    stops: dict[int, Outcomes] = {}
    while step < len(queries):
        query = queries[step]
        unanswered, answered = law.log_unanswered(query.distance)
        other_unanswered, other_answered = law.log_unanswered(query.other_distance)
        stops[step] = _masses(noise, survive + unanswered, other_survive + other_unanswered)
        survive, other_survive = survive + answered, other_survive + other_answered
        if query.split:
            leak = _masses(noise, survive, other_survive)
            return stops, Outcomes(np.append(leak.probability, 0.0), np.append(0.0, leak.other))
        step = turns[step][0]
    return stops, _masses(noise, survive, other_survive)


def _masses(noise: IntegerLaw, log_chance: Floats, other_log_chance: Floats) -> Outcomes:
    """Return the outcome with these log-probabilities (n,) given each threshold noise."""
    mine, theirs = (np.array([noise.mass @ np.exp(chance)]) for chance in (log_chance, other_log_chance))
    return Outcomes(mine, theirs)
