"""Doors of the rooms where budgets are spent: mechanisms and aggregation. A refused call spends nothing and changes no file."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from teacher_student import aggregation, mechanisms
from teacher_student.arguments import ArgumentError
from teacher_student.mechanisms import GeneratorNoise, RecordedNoise, State

from .doors_privacy import BUDGET, GIVEN, MECHANISM, STABILITY, mappings
from .strategies import EPSILON, OPTION, Door, integers

COUNTS = st.sampled_from([[[900, 0], [450, 450]], [[0, 900]], np.array([[300, 600]] * 3, np.uint16)])
VOTES = st.sampled_from([[[0] * 9, [1] * 9], [[0, 1, -1] * 3], np.ones((3, 9), np.int8)])
SCORES = st.sampled_from([np.full((2, 9), 0.4), np.array([[np.nan, 0.2, 7.0] * 3]), [[0.1, 0.9, 0.5] * 3]])
NAMES = st.sampled_from([None, ["a"], ["a", "b"], [1, 2, 3], ["a", "a"]])
STATE = st.sampled_from([None, "state.sqlite"])
NEIGHBOURS = st.sampled_from(["add_remove", "replace_one", "label_only"])
NOISE = st.sampled_from([None, None, GeneratorNoise(np.random.default_rng(0))])


def bytes_of(folder):
    """What the files say; a session's file by its rows, since opening it may tidy up the pages."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".sqlite":
            with contextlib.closing(sqlite3.connect(path)) as database:
                found[path.name] = "\n".join(database.iterdump())
        elif path.is_file() and ".sqlite-" not in path.name:
            found[path.name] = path.read_bytes()
    return found


@contextlib.contextmanager
def scratch(given, *names):
    """A folder of its own for the file arguments that are plain names."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield Path(folder), {name: value for name, value in given.items() if name not in names}


def releasing(function):
    """A call that keeps its state; refused, it leaves none that has answers."""

    def call(**given):
        with scratch(given) as (folder, rest):
            try:
                release = function(**rest)
            except ArgumentError:
                assert not (folder / "labels.csv").exists()
                for path in folder.glob("state.sqlite"):
                    with contextlib.closing(sqlite3.connect(path)) as database:
                        assert not database.execute("SELECT count(*) FROM batches WHERE number > 0").fetchone()[0]
                raise
            release.save("out")
            assert type(release).load("out").certificate == release.certificate

    return call


def answering(kind, **fixed):
    """A session that has answered once, asked something odd: refused, it is what it was."""

    def call(first, given, odd, **more):
        with scratch(given) as (folder, _), kind(**fixed, state="state.sqlite") as session:
            session.answer(first)
            before = bytes_of(folder), session.remaining_cutoff, session.halted
            try:
                session.answer(odd, **more)
            except ArgumentError:
                assert (bytes_of(folder), session.remaining_cutoff, session.halted) == before
                raise

    return call


def with_account(dataset, epsilon, delta, budget_filter, session_epsilon, counts):
    """Charged or refused; refused, the ledger says what it said."""
    with scratch({}) as (folder, _):
        ledger = aggregation.Ledger(folder / "ledger.sqlite")
        before = bytes_of(folder)
        try:
            account = ledger.account(dataset, epsilon=epsilon, delta=delta, filter=budget_filter)
        except ArgumentError:
            assert bytes_of(folder) == before
            raise
        opened = bytes_of(folder)
        try:
            aggregation.label(
                counts=counts, num_classes=2, epsilon=session_epsilon, delta=1e-6, num_teachers=900, account=account
            )
        except ArgumentError:
            assert bytes_of(folder) == opened
            raise


def selecting(**given):
    """The best run, charged to an account; refused, the ledger says what it said."""
    with scratch({}) as (folder, _):
        account = aggregation.Ledger(folder / "ledger.sqlite").account("people")
        before = bytes_of(folder)
        try:
            chosen = aggregation.select_privately(score=lambda *_: 0.0, account=account, **given)
        except ArgumentError:
            assert bytes_of(folder) == before
            raise
        assert chosen.release.certificate.verify() <= given["epsilon"]


def opened(path):
    with scratch({}):
        return aggregation.Ledger(path).to_json()


def certified(kind, **values):
    release = aggregation.label(counts=[[900, 0]], num_classes=2, epsilon=1.0, delta=1e-5, cutoff=2, num_teachers=900)
    return kind(certificate=release.certificate, **values)


def loading(folder):
    with scratch({}):
        aggregation.label(counts=[[900, 0]], num_classes=2, epsilon=1.0, delta=1e-5, num_teachers=900).save("out")
        return aggregation.load_release(folder).certificate.verify()


def adding(counts, predictions):
    counts = np.array([[1, 0], [0, 2]], np.uint16) if counts is None else counts
    before = counts.copy()
    try:
        aggregation.add_votes(counts, predictions)
    except ArgumentError:
        assert np.array_equal(counts, before)
        raise


def adding_scores(scores, norm):
    sums = aggregation.empty_sums(2, 2)
    try:
        aggregation.add_scores(sums, scores, norm)
    except ArgumentError:
        assert not sums.any()
        raise


def scoring(sums, query_ids):
    with aggregation.ScoreSession(2, 1.0, 1e-5, num_queries=2, num_teachers=900, norm=1.0) as session:
        try:
            session.answer(sums, query_ids=query_ids)
        except ArgumentError:
            assert session.remaining_units == 2
            raise


def answer_with(parameters, counts, state):
    mechanism = mechanisms.build_mechanism(parameters)
    noise = GeneratorNoise(np.random.default_rng(0))
    return mechanism.answer(np.asarray(counts), mechanism.start(noise), noise)


COMMON = {**BUDGET, "cutoff": integers(1, 5), "neighbours": NEIGHBOURS, "state": STATE, "noise": NOISE}
SUMS_IN_ROUNDS = {
    "num_classes": integers(2, 3),
    "num_queries": integers(3, 5),
    "rounds": integers(1, 3),
    "norm": EPSILON,
    "num_teachers": st.just(900),
    "vote_change": st.sampled_from(["replaced", "withdrawn"]),
    **{name: COMMON[name] for name in ("epsilon", "delta", "neighbours", "state", "noise")},
}
CLASS_SCORES = st.sampled_from([np.full((2, 9, 2), 0.5), [[[1.0, -1.0]] * 9, [[np.nan, np.inf]] * 9]])
TEACHERS = st.sampled_from([9, 9, 900])
MECHANISMS = {
    "build_mechanism": Door(mechanisms.build_mechanism, {"parameters": GIVEN}),
    "distance_to_instability": Door(mechanisms.distance_to_instability, {"counts": COUNTS}),
    "State": Door(
        mechanisms.State, {"noisy_threshold": OPTION, "paid": integers(0), "answered": integers(0), "asked": integers(3, 9)}
    ),
    "State.from_dict": Door(State.from_dict, {"mapping": mappings()}),
    "GeneratorNoise": Door(GeneratorNoise, {"generator": st.just(np.random.default_rng(0))}),
    "RecordedNoise": Door(RecordedNoise, {"values": st.just([1, 2])}),
}
AGGREGATION = {
    "label": Door(
        releasing(aggregation.label),
        {"predictions": VOTES, "num_classes": integers(2, 3), "mechanism": MECHANISM, "num_teachers": TEACHERS, **COMMON},
        weight=0.5,
    ),
    "label of counts": Door(
        releasing(aggregation.label),
        {"counts": COUNTS, "num_classes": integers(2, 2), "mechanism": MECHANISM, "num_teachers": st.just(900), **COMMON},
        weight=0.5,
    ),
    "label_soft": Door(
        releasing(aggregation.label_soft),
        {"scores": SCORES, "num_teachers": st.just(9), "bins": integers(3, 9), "mechanism": STABILITY, **COMMON},
        weight=0.5,
    ),
    "label_fractions": Door(
        releasing(aggregation.label_fractions),
        {
            "counts": COUNTS,
            "num_classes": integers(2, 2),
            "num_teachers": st.just(900),
            "max_answers": integers(3, 5),
            **{name: COMMON[name] for name in ("epsilon", "delta", "neighbours", "state", "noise")},
        },
        weight=0.5,
    ),
    "average_scores": Door(
        releasing(aggregation.average_scores),
        {
            "scores": CLASS_SCORES,
            "num_teachers": st.just(9),
            "norm": EPSILON,
            **{name: COMMON[name] for name in ("epsilon", "delta", "neighbours", "state", "noise")},
        },
        weight=0.5,
    ),
    "ScoreSession": Door(lambda **given: scratch_session(aggregation.ScoreSession, given), SUMS_IN_ROUNDS, weight=0.5),
    "GradientSession": Door(lambda **given: scratch_session(aggregation.GradientSession, given), SUMS_IN_ROUNDS, weight=0.5),
    "ScoreSession.answer": Door(scoring, {"sums": st.just([[5, -5], [900, 0]]), "query_ids": NAMES}, weight=0.3),
    "add_scores": Door(adding_scores, {"scores": CLASS_SCORES, "norm": EPSILON}),
    "empty_sums": Door(aggregation.empty_sums, {"num_queries": integers(), "num_classes": integers()}),
    "LabelSession": Door(
        lambda **given: scratch_session(aggregation.LabelSession, given),
        {
            "num_classes": integers(2, 3),
            "mechanism": MECHANISM,
            "num_queries": integers(3, 9),
            "num_teachers": TEACHERS,
            **COMMON,
        },
        weight=0.5,
    ),
    "SoftLabelSession": Door(
        lambda **given: scratch_session(aggregation.SoftLabelSession, given),
        {
            "bins": integers(3, 9),
            "mechanism": STABILITY,
            "num_classes": OPTION,
            "num_teachers": TEACHERS,
            "num_queries": integers(3, 9),
            **COMMON,
        },
        weight=0.5,
    ),
    "FractionSession": Door(
        lambda **given: scratch_session(aggregation.FractionSession, given),
        {
            "num_classes": integers(2, 3),
            "max_answers": integers(3, 5),
            "num_teachers": st.just(900),
            **{name: COMMON[name] for name in ("epsilon", "delta", "neighbours", "state", "noise")},
        },
        weight=0.5,
    ),
    "LabelSession.answer": Door(
        answering(aggregation.LabelSession, num_classes=2, epsilon=1.0, delta=1e-5, cutoff=5, num_teachers=9),
        {"odd": VOTES, "counts": st.none(), "query_ids": NAMES, "first": st.just([[0] * 9, [1] * 9]), "given": st.just({})},
        weight=0.3,
        kept=("first", "given"),
    ),
    "SoftLabelSession.answer": Door(
        answering(aggregation.SoftLabelSession, bins=5, epsilon=1.0, delta=1e-5, cutoff=5, num_teachers=9),
        {
            "odd": SCORES,
            "bins": integers(3, 5),
            "query_ids": NAMES,
            "first": st.just(np.full((2, 9), 0.3)),
            "given": st.just({}),
        },
        weight=0.3,
        kept=("first", "given"),
    ),
    "Account": Door(
        with_account,
        {
            "dataset": st.just("people"),
            "epsilon": st.sampled_from([None, 1.0, 9.0]),
            "delta": st.sampled_from([None, 1e-5]),
            "budget_filter": st.sampled_from(["basic", "renyi", "gaussian"]),
            "session_epsilon": st.sampled_from([0.5, 2.0]),
            "counts": COUNTS,
        },
        weight=0.3,
    ),
    "Ledger": Door(opened, {"path": st.just("ledger.sqlite")}, weight=0.3),
    "Release": Door(
        lambda **given: certified(aggregation.Release, **given), {"labels": st.just([0, -1]), "queries": NAMES}, weight=0.3
    ),
    "SoftRelease": Door(
        lambda **given: certified(aggregation.SoftRelease, **given), {"codes": st.just([11, -1]), "queries": NAMES}, weight=0.3
    ),
    "FractionRelease": Door(
        lambda **given: certified(aggregation.FractionRelease, **given),
        {"codes": st.just([[1, 2]]), "queries": NAMES},
        weight=0.3,
    ),
    "ScoreRelease": Door(
        lambda **given: certified(aggregation.ScoreRelease, **given),
        {"codes": st.just([[1, 2]]), "queries": NAMES},
        weight=0.3,
    ),
    "GradientRelease": Door(
        lambda **given: certified(aggregation.GradientRelease, **given),
        {"codes": st.just([[1, 2]]), "queries": NAMES},
        weight=0.3,
    ),
    "count_votes": Door(aggregation.count_votes, {"predictions": VOTES, "num_classes": integers(2, 4)}),
    "empty_counts": Door(
        aggregation.empty_counts, {"num_queries": integers(), "num_classes": integers(), "num_teachers": integers(1, 999)}
    ),
    "select_privately": Door(
        selecting,
        {
            "candidates": st.sampled_from([[[[900, 0], [450, 450]], [[0, 900], [900, 0]]], [np.array([[300, 600]])]]),
            "num_classes": integers(2, 2),
            "num_teachers": st.just(900),
            "repetitions": integers(2, 3),
            "mechanism": MECHANISM,
            **{name: COMMON[name] for name in ("epsilon", "delta", "cutoff", "neighbours")},
        },
        weight=0.2,
    ),
    "load_release": Door(loading, {"folder": st.just("out")}, weight=0.2),
    "add_votes": Door(
        adding, {"counts": st.none(), "predictions": st.sampled_from([[[0, 1], [1, -1]], [[0], [0]], [[0]]])}, kept=("counts",)
    ),
}


def scratch_session(kind, given):
    with scratch({}), kind(**given) as session:
        return session.remaining_units, session.halted, session.certificate.verify()
