"""Errors, draws, output and changes of a teacher's code stay with that teacher, in every engine and in worker processes."""

from __future__ import annotations

import itertools
import sys
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from teacher_student.aggregation import count_votes
from teacher_student.arguments import ArgumentError
from teacher_student.labels import vote_type
from teacher_student.teachers import (
    MLP,
    LearnerEnsemble,
    TrainingSettings,
    load_teachers,
    predict_class_scores,
    predict_scores,
    predict_votes,
    train_learners,
    train_teachers,
)
from teacher_student.teachers.engines.batched import BatchedEngine

from .altered import C, differing, exchanged, flat, shards_of

D, SIZES = 6, (11, 4, 9, 0, 8, 5)
POINTS = shards_of([7], seed=5)[0][0]


class Whitened(nn.Module):
    """Refuses NaN, as any factorisation does."""

    def __init__(self, classes=C):
        super().__init__()
        self.linear = nn.Linear(D, classes)

    def forward(self, values):
        factor = torch.linalg.cholesky(values.T @ values / len(values) + torch.eye(D))
        return self.linear(torch.linalg.solve_triangular(factor, values.T, upper=False).T)


class OrthogonalWeights(nn.Module):
    """Refuses weights that are not finite: with a high rate it fails in the second step, and when it votes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(D, C)

    def forward(self, values):
        weight = self.linear.weight
        return self.linear(values) + torch.linalg.cholesky(weight @ weight.T + torch.eye(C)).sum()


def refuse_nan(images, keys):
    """An augmentation that fails, for the engine that runs no code of users."""
    del keys
    if images.isnan().any():
        raise SystemExit("a record is not a number")
    return images


NAN = lambda part: (np.where(np.arange(len(part[1]))[:, None] == 2, np.nan, part[0]).astype(np.float32), part[1])  # noqa: E731
HUGE = lambda part: (np.where(np.arange(len(part[1]))[:, None] == 2, 3e38, part[0]).astype(np.float32), part[1])  # noqa: E731
CASES = {
    "vmap": (Whitened, {}),
    "vmap by weights": (OrthogonalWeights, {}),
    "sequential": (Whitened, {"engine": "sequential"}),
    "batched": (partial(MLP, D, C, (5,)), {"augment": refuse_nan}),
    "batched, momentum and decay": (
        partial(MLP, D, C, (5,), dropout=0.2),
        {"augment": refuse_nan, "optimizer": "adamw", "weight_decay": (0.1, 0.0, 0.2, 0.1, 0.3, 0.1), "clip_norm": 0.5},
    ),
}


def train(parts, network, options, **more):
    settings = TrainingSettings(**{"steps": 5, "batch_size": 4, "chunk": 4, "learning_rate": 0.05, **options})
    return train_teachers(*flat(parts), network, settings, master_seed=7, report=lambda *_: None, **more)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("altered", [(2,), (0,), (0, 2, 5), range(6)], ids=str)
def test_a_teacher_that_raises_abstains_and_all_others_keep_their_bits(case, altered, capfd):
    network, options = CASES[case]
    parts = shards_of(SIZES)
    base = train(parts, network, options)
    assert base.engine.name == case.split()[0].strip(",")
    (votes,) = predict_votes(base, POINTS)
    assert (votes[:, [0, 1, 2, 4, 5]] >= 0).all()
    failed = [shard for shard in altered if SIZES[shard] > 2]
    now = parts
    for shard in failed:
        now = exchanged(now, shard, NAN)
    ensemble = train(now, network, options)
    assert ensemble.engine.name == base.engine.name
    assert differing(base, ensemble) <= set(failed)
    assert np.flatnonzero(ensemble.abstaining()).tolist() == sorted({3, *failed})
    (other,) = predict_votes(ensemble, POINTS)
    others = [shard for shard in range(6) if shard not in failed]
    np.testing.assert_array_equal(other[:, others], votes[:, others])
    assert (other[:, failed] == -1).all()
    for found, expected in zip(predict_class_scores(ensemble, POINTS), predict_class_scores(base, POINTS), strict=True):
        assert found.shape == expected.shape
    assert capfd.readouterr() == ("", "")


def test_a_broken_twin_lets_the_failure_reach_the_others(monkeypatch):
    """Without containment one record stops the run; if the whole chunk abstained, it would move every vote."""
    parts = exchanged(shards_of(SIZES), 2, NAN)
    monkeypatch.setattr("teacher_student.teachers.chunk.attempt", lambda call: call())
    with pytest.raises(torch.linalg.LinAlgError):
        train(parts, Whitened, {})


@pytest.mark.parametrize("alter", [NAN, HUGE])
def test_many_failures_cost_a_step_each_and_not_a_training_each(monkeypatch, alter):
    calls = []
    gradients = BatchedEngine.gradients

    def counted(self, packed, features, labels, keys, weights=None):
        calls.append(len(features))
        if not torch.isfinite(features).all() or features.abs().max() > 1e30:
            raise ArithmeticError
        return gradients(self, packed, features, labels, keys, weights)

    monkeypatch.setattr(BatchedEngine, "gradients", counted)
    parts = shards_of([6] * 16)
    for shard in range(8):
        parts = exchanged(parts, shard, alter)
    ensemble = train(parts, partial(MLP, D, C, (5,)), {"chunk": 16, "steps": 40, "batch_size": 6})
    assert ensemble.abstaining().tolist() == [True] * 8 + [False] * 8
    assert set(calls) == {16}  # the same shape, whoever fails
    assert len(calls) < 2 + 40 + 2 * 16 * 6


def test_a_killed_training_remembers_who_has_failed(tmp_path, monkeypatch):
    from teacher_student.teachers import chunk

    monkeypatch.setattr(chunk, "_ROWS_PER_WINDOW", 16)  # unfinished chunks are kept after every step
    parts = exchanged(shards_of(SIZES), 2, NAN)
    whole = train(parts, Whitened, {"optimizer": "adam"})
    put, seen = chunk.UnfinishedChunk.of, itertools.count()

    def killed(*values):
        if next(seen) == 5:
            raise KeyboardInterrupt
        return put(*values)

    monkeypatch.setattr(chunk.UnfinishedChunk, "of", killed)
    with pytest.raises(BaseException) as stop:  # noqa: PT011  Lightning turns an interrupt into SystemExit
        train(parts, Whitened, {"optimizer": "adam"}, checkpoint_dir=tmp_path, save_seconds=0.0)
    assert isinstance(stop.value, KeyboardInterrupt | SystemExit)
    assert list(tmp_path.glob("unfinished_*"))
    monkeypatch.setattr(chunk.UnfinishedChunk, "of", put)
    resumed = train(parts, Whitened, {"optimizer": "adam"}, checkpoint_dir=tmp_path)
    assert differing(whole, resumed) == set()
    assert resumed.abstaining().tolist() == whole.abstaining().tolist()
    np.testing.assert_array_equal(
        next(predict_votes(load_teachers(tmp_path, Whitened), POINTS)), next(predict_votes(whole, POINTS))
    )


@pytest.mark.parametrize("engine", ["vmap", "sequential"])
def test_a_teacher_that_raises_when_it_votes_abstains(engine, monkeypatch):
    """A network that trains, but cannot be evaluated with what one shard taught it."""

    class Fragile(nn.Linear):
        def forward(self, values):
            if not self.training:
                torch.linalg.cholesky(self.weight @ self.weight.T + torch.eye(2))
            return super().forward(values)

    parts = [(features, labels % 2) for features, labels in shards_of(SIZES)]
    ensemble = train(parts, partial(Fragile, D, 2), {"engine": engine})
    votes, scores = next(predict_votes(ensemble, POINTS)), next(predict_scores(ensemble, POINTS))
    get = ensemble.store.get

    def broken(number):
        trained = get(number)
        stack = {name: tensor.clone() for name, tensor in trained.stack.items()}
        for shard in {2, 4} & set(ensemble.shards_of(number)):
            stack["weight"][shard - ensemble.shards_of(number).start] = torch.nan
        return type(trained)(stack, trained.abstaining, trained.losses)

    monkeypatch.setattr(ensemble.store, "get", broken)
    others = [0, 1, 3, 5]
    for found, expected in ((next(predict_votes(ensemble, POINTS)), votes), (next(predict_scores(ensemble, POINTS)), scores)):
        np.testing.assert_array_equal(found[:, others], expected[:, others])
    assert (next(predict_votes(ensemble, POINTS))[:, [2, 4]] == -1).all()
    assert np.isnan(next(predict_scores(ensemble, POINTS))[:, [2, 4]]).all()
    silent = np.concatenate(list(predict_class_scores(ensemble, POINTS)))[[2, 4]]
    assert not silent.any()


def test_points_that_the_network_refuses_are_refused_for_everybody():
    class Bounded(nn.Linear):
        def forward(self, values):
            if not self.training and values.max() > 100:
                raise ValueError("above 100")
            return super().forward(values)

    ensemble = train(shards_of(SIZES), partial(Bounded, D, C), {"engine": "sequential"})
    assert (next(predict_votes(ensemble, POINTS))[:, 0] >= 0).all()
    with pytest.raises(ArgumentError, match="public_features must be points that the network takes, but it fails: above 100"):
        next(predict_votes(ensemble, POINTS + 200))


def test_an_interrupt_from_the_keyboard_stops_the_training():
    def interrupt(images, keys):
        if images.isnan().any():
            raise KeyboardInterrupt
        return refuse_nan(images, keys)

    for engine in ("batched", "sequential"):
        with pytest.raises(BaseException) as stop:  # noqa: PT011
            train(exchanged(shards_of(SIZES), 2, NAN), partial(MLP, D, C), {"engine": engine, "augment": interrupt})
        assert isinstance(stop.value, KeyboardInterrupt | SystemExit)


class Restless(nn.Module):
    """Draws from the global generators, until it sees NaN; warns about it; changes its input when it votes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(D, C)

    def forward(self, values):
        if values.isnan().any():
            warnings.warn("not a number", stacklevel=1)
            sys.exit(3)
        if not self.training:
            values.sub_(self.linear.weight.mean().detach() * 100)
        return self.linear(values * float(np.random.random()) + torch.poisson(self.linear.weight.abs().sum()))  # noqa: NPY002


def test_draws_warnings_and_changed_points_of_one_teacher_do_not_reach_the_next():
    parts = shards_of(SIZES)
    base = train(parts, Restless, {})
    votes = next(predict_votes(base, POINTS.copy()))
    assert base.engine.name == "sequential"
    for alter in (NAN, lambda part: (part[0] * 3, part[1])):
        ensemble = train(exchanged(parts, 0, alter), Restless, {})
        assert differing(base, ensemble) == {0}
        points = POINTS.copy()
        np.testing.assert_array_equal(next(predict_votes(ensemble, points))[:, 1:], votes[:, 1:])
        np.testing.assert_array_equal(points, POINTS)


def learned(parts, learner, **options):
    return train_learners(*flat(parts), learner, num_classes=C, **options)


class Raising:
    """Raises what it is told to on NaN, and prints it."""

    def __init__(self, error):
        self.error = error

    def fit(self, features, labels):
        if np.isnan(features).any():
            print("not a number")
            print("not a number", file=sys.stderr)
            raise self.error
        self.label = labels[0]

    def predict(self, features):
        return np.full(len(features), self.label)


@pytest.mark.parametrize("error", [UserWarning, RecursionError, MemoryError, SystemExit, GeneratorExit, FloatingPointError])
def test_a_learner_may_raise_anything(error, capfd):
    parts = shards_of(SIZES)
    votes = next(learned(parts, partial(Raising, error)).predict_votes(POINTS))
    ensemble = learned(exchanged(parts, 2, NAN), partial(Raising, error))
    assert np.flatnonzero(ensemble.abstaining()).tolist() == [2, 3]
    others = [0, 1, 3, 4, 5]
    np.testing.assert_array_equal(next(ensemble.predict_votes(POINTS))[:, others], votes[:, others])
    assert capfd.readouterr() == ("", "")


def test_a_keyboard_interrupt_stops_the_learners():
    with pytest.raises(KeyboardInterrupt):
        learned(exchanged(shards_of(SIZES), 2, NAN), partial(Raising, KeyboardInterrupt))


def test_a_learner_that_scales_points_in_place_scales_its_own():
    parts = shards_of(SIZES)
    learner = make_pipeline(StandardScaler(copy=False), DecisionTreeClassifier(max_depth=3))
    points = POINTS.astype(np.float64)
    one = next(learned(parts, learner).predict_votes(points))
    other = next(learned(exchanged(parts, 0, lambda part: (part[0] * 50 + 9, part[1])), learner).predict_votes(points))
    np.testing.assert_array_equal(one[:, 1:], other[:, 1:])
    np.testing.assert_array_equal(points, POINTS)


CRASH = """
import ctypes, os, sys, threading
import numpy as np
from teacher_student.teachers import train_learners

class Crashing:
    def fit(self, features, labels):
        if np.isnan(features[0]).any():
            os._exit(7)
        if np.isnan(features[1]).any():
            ctypes.string_at(0)
        if np.isnan(features[2]).any():
            self.lock = threading.Lock()  # cannot be sent back
        self.label = int(labels[0])

    def predict(self, points):
        return np.full(len(points), self.label)

features, labels = np.zeros((24, 2)), np.tile([0, 1], 12)
for teacher, record in eval(sys.argv[1]):
    features[4 * teacher + record] = np.nan
found = train_learners(features, labels, np.arange(24), np.arange(0, 25, 4), Crashing, num_classes=2, num_workers=2)
np.save(sys.argv[2], next(found.predict_votes(np.zeros((3, 2)))))
"""


@pytest.mark.slow  # workers start anew after every crash
def test_a_learner_that_ends_its_process_abstains_and_nothing_shows(tmp_path):
    import subprocess

    def run(name, bad):
        command = [sys.executable, "-c", CRASH, str(bad), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return np.load(tmp_path / f"{name}.npy")

    base, crashed = run("base", []), run("crashed", [(1, 0), (2, 1), (5, 2)])
    np.testing.assert_array_equal(base[:, [0, 3, 4]], crashed[:, [0, 3, 4]])
    assert (base >= 0).all()
    assert (crashed[:, [1, 2, 5]] == -1).all()


def test_forty_thousand_classes():
    """Class 39,999 wrapped to a negative number of 16 bits."""
    classes = 40_000
    data = (np.ones((2, 1), np.float32), np.full(2, classes - 1), np.arange(2), np.array([0, 2, 2]))
    settings = TrainingSettings(steps=1, batch_size=2, learning_rate=1.0)
    ensemble = train_teachers(*data, partial(MLP, 1, classes, (), initial_bias=[0.0] * classes), settings)
    (votes,) = predict_votes(ensemble, np.ones((3, 1), np.float32))
    assert votes.tolist() == [[classes - 1, -1]] * 3
    assert votes.dtype == vote_type(classes) == np.int32

    class Last:
        def predict(self, features):
            return np.full(len(features), classes - 1)

    (learner_votes,) = LearnerEnsemble([Last(), None], classes).predict_votes(np.ones((3, 1)))
    np.testing.assert_array_equal(learner_votes, votes)
    counts = count_votes(votes, classes)
    assert counts[:, classes - 1].tolist() == [1, 1, 1]
    assert counts.sum() == 3
