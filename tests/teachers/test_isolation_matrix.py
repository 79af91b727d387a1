"""Isolation under every setting: networks, engines, optimisers, precisions, chunks, and every config that is offered.

The default suite walks a cover of all pairs of values; `-m slow` the whole product of network, engine, optimiser, precision and
chunk, with the other settings drawn anew for each. Each case is trained as it is and with one shard altered in some of the ways
of `altered`: every other teacher's parameters and votes must be the same bits.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import random
from functools import partial

import hydra
import numpy as np
import pytest
import torch
import torchvision
from omegaconf import OmegaConf
from torch import nn

from teacher_student.app import compose, conf_folder, settings_from_config
from teacher_student.pipeline.settings import EachRecord, Estimator
from teacher_student.pipeline.stages import build_network
from teacher_student.teachers import (
    CNN,
    MLP,
    LogisticRegression,
    ResNet,
    ShiftAndFlip,
    TrainingSettings,
    group_normalized,
    train_learners,
    train_teachers,
)
from teacher_student.teachers.prediction import votes_of
from teacher_student.teachers.settings import ENGINES, OPTIMIZERS, PRECISIONS, SCHEDULES

from .altered import ABSTAINS, ALTERATIONS, C, differing, exchanged, flat, shards_of

FLAT, IMAGE = (6,), (3, 8, 8)
SIZES, ALTERED = (5, 2, 9, 0, 4), 2


class Recurrent(nn.Module):
    """A user's own network, which no engine can stack."""

    def __init__(self):
        super().__init__()
        self.lstm, self.linear = nn.LSTM(2, 4, batch_first=True, num_layers=2, dropout=0.2), nn.Linear(4, C)

    def forward(self, values):
        return self.linear(self.lstm(values.reshape(len(values), -1, 2))[0][:, -1])


def torchvision_model():
    return group_normalized(torchvision.models.DenseNet(2, (1,), 4, num_classes=C))


NETWORKS = {
    "logistic": (partial(LogisticRegression, 6, C), FLAT, ("batched", "vmap", "sequential")),
    "MLP": (partial(MLP, 6, C, (7,), dropout=0.3), FLAT, ("batched", "vmap", "sequential")),
    "LSTM": (Recurrent, FLAT, ("sequential",)),
    "CNN": (partial(CNN, IMAGE, C, filters=(3,), hidden=(5,), dropout=0.2), IMAGE, ("vmap", "sequential")),
    "ResNet": (partial(ResNet, IMAGE, C, blocks=(1,), widths=(4,)), IMAGE, ("vmap", "sequential")),
    "torchvision": (torchvision_model, IMAGE, ("vmap", "sequential")),
}
AXES = {
    "place": [(name, engine) for name, (_, _, engines) in NETWORKS.items() for engine in engines],
    "optimizer": [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.0), ("adamw", 0.0)],
    "precision": list(PRECISIONS),
    "chunk": [1, 2, 3, None],
    "schedule": [("constant", 0), ("cosine", 1), ("linear", 2)],
    "weight_decay": [0.0, 0.1, (0.1, 0.0, 0.3, 0.2, 0.1)],
    "clip_norm": [None, 0.1],
    "label_smoothing": [0.0, 0.2],
    "augment": [None, ShiftAndFlip(1)],
}
MAIN = ("place", "optimizer", "precision", "chunk")


def possible(case):
    """Chunks mean nothing to the sequential engine, only images are shifted, and not every CPU has an LSTM in bfloat16."""
    name, engine = case["place"]
    return (
        (engine != "sequential" or case["chunk"] == 1)
        and (NETWORKS[name][1] is IMAGE or case["augment"] is None)
        and (name != "LSTM" or case["precision"] != "bfloat16")
    )


def product():
    """Every combination of the main settings; the others are drawn."""
    for number, values in enumerate(itertools.product(*(AXES[axis] for axis in MAIN))):
        draw = random.Random(number)
        rest = {axis: draw.choice(options) for axis, options in AXES.items() if axis not in MAIN}
        case = {**dict(zip(MAIN, values, strict=True)), **rest}
        if NETWORKS[case["place"][0]][1] is FLAT:
            case["augment"] = None
        if possible(case):
            yield case


def pairs(case):
    return set(itertools.combinations([(axis, str(value)) for axis, value in case.items()], 2))


@functools.cache
def cover():
    """Few cases in which every possible pair of values occurs: the one with most new pairs, again and again."""
    draw = random.Random(0)
    pool = [{axis: draw.choice(options) for axis, options in AXES.items()} for _ in range(6000)]
    left = {number: pairs(case) for number, case in enumerate(pool) if possible(case)}
    chosen = []
    while left:
        best = max(left, key=lambda number: len(left[number]))
        chosen.append(pool[best])
        seen = left[best]
        left = {number: rest for number, new in left.items() if (rest := new - seen)}
    return chosen


def train(parts, network, settings, options=None):
    return train_teachers(*flat(parts), network, settings, master_seed=7, trainer_options=options, report=lambda *_: None)


def check(case, alterations):
    (name, engine), decay = case["place"], case["weight_decay"]
    network, shape, _ = NETWORKS[name]
    (optimizer, momentum), (schedule, warmup) = case["optimizer"], case["schedule"]
    rest = {key: case[key] for key in ("precision", "chunk", "clip_norm", "label_smoothing", "augment")}
    settings = TrainingSettings(
        optimizer=optimizer,
        momentum=momentum,
        schedule=schedule,
        warmup_steps=warmup,
        weight_decay=decay,
        engine=engine,
        steps=3,
        batch_size=4,
        learning_rate=0.03,
        **rest,
    )
    must_be_isolated(partial(train, network=network, settings=settings), shape, alterations)


def must_be_isolated(training, shape, alterations, num_classes=C):
    """Train as it is and with the shard altered; compare the other teachers' bits."""
    parts = [(features, labels % num_classes) for features, labels in shards_of(SIZES, shape)]
    points = torch.from_numpy(shards_of([9], shape, seed=5)[0][0])

    def votes_on(ensemble):  # as `predict_votes` asks, without Lightning
        said = ensemble.predict_step((points, votes_of(num_classes), range(ensemble.num_chunks)), 0)
        return torch.cat(said).T.numpy()

    base = training(parts)
    votes = votes_on(base)
    others = [shard for shard in range(len(SIZES)) if shard != ALTERED]
    assert (votes[:, 3] == -1).all()
    assert not base.abstaining()[[0, 1, 2, 4]].any()
    for name in alterations:
        altered = training(exchanged(parts, ALTERED, ALTERATIONS[name]))
        assert differing(base, altered) == {ALTERED}, name
        now = votes_on(altered)
        np.testing.assert_array_equal(votes[:, others], now[:, others], err_msg=name)
        assert name not in ABSTAINS or (now[:, ALTERED] == -1).all(), name


def drawn(number, count):
    return random.Random(number).sample(sorted(ALTERATIONS), count)


def test_the_axes_hold_all_that_is_offered():
    assert {optimizer for optimizer, _ in AXES["optimizer"]} == set(OPTIMIZERS)
    assert {schedule for schedule, _ in AXES["schedule"]} == set(SCHEDULES)
    assert {engine for _, engine in AXES["place"]} == set(ENGINES) - {"auto"}
    assert set(AXES["precision"]) == set(PRECISIONS)


def test_the_cover_holds_every_possible_pair():
    held = set().union(*map(pairs, cover()))
    assert set().union(*map(pairs, product())) <= held
    assert len(cover()) < 70


@pytest.mark.parametrize("number", range(len(cover())))
def test_a_cover_of_all_pairs_is_isolated(number):
    check(cover()[number], drawn(number, 1))


@pytest.mark.slow
@pytest.mark.parametrize("place", AXES["place"], ids="-".join)
def test_the_whole_product_is_isolated(place):
    cases = [(number, case) for number, case in enumerate(product()) if case["place"] == place]
    for number, case in cases:
        check(case, drawn(number, 2))
    print(f"{'-'.join(place)}: {len(cases)} cases, {3 * len(cases)} trainings, every other teacher bit-identical")


# Every config that is offered: a new file under conf/ is here by itself, and fails unless its teachers are isolated.


def read(group, name, key=None):
    config = OmegaConf.load(conf_folder() / group / f"{name}.yaml")
    return hydra.utils.instantiate(config if key is None else config[key])


def names(group):
    return sorted(path.stem for path in (conf_folder() / group).glob("*.yaml"))


def must_isolate_learner(learner, training, options, alterations):
    """Train what a run trains with these settings, in a few steps, on the shards of this file."""
    if isinstance(learner, EachRecord):  # `test_record_voters` and `test_record_gradients` have their isolation
        return None
    if isinstance(learner, Estimator):
        return estimators_must_be_isolated(learner.estimator, alterations)
    parameters = inspect.signature(learner).parameters
    shape = IMAGE if "image_shape" in parameters else FLAT
    constants = [getattr(learner, "keywords", {}).get(name) for name in ("initial_bias", "prediction_offset")]
    num_classes = next((len(values) for values in constants if values), C)
    network = build_network(learner, shape, num_classes)
    training = dataclasses.replace(training, steps=2, batch_size=4)
    must_be_isolated(partial(train, network=network, settings=training, options=options), shape, alterations, num_classes)
    return None


def estimators_must_be_isolated(estimator, alterations):
    def votes(parts):
        ensemble = train_learners(*flat(parts), estimator, num_classes=C, master_seed=7)
        return np.concatenate(list(ensemble.predict_votes(points)))

    parts, points = shards_of(SIZES), shards_of([300], seed=5)[0][0]
    base, others = votes(parts), [shard for shard in range(len(SIZES)) if shard != ALTERED]
    for name in alterations:
        now = votes(exchanged(parts, ALTERED, ALTERATIONS[name]))
        np.testing.assert_array_equal(base[:, others], now[:, others], err_msg=name)
        assert not np.array_equal(base, now), name


def configs():
    """All combinations; settings of training mean nothing to an estimator, so that one is enough for it.

    Trainers of several processes would start this test session again; `tests/pipeline/test_processes.py` has them.
    """
    alone = [name for name in names("trainer") if read("trainer", name)["devices"] == 1]
    for learner, trainer in itertools.product(names("learner"), alone):
        teachers = names("teachers")[:1] if isinstance(read("learner", learner), Estimator | EachRecord) else names("teachers")
        marks = [pytest.mark.gpu] if trainer == "gpu" else []
        for name in teachers:
            yield pytest.param(learner, name, trainer, marks=marks, id=f"{learner}-{name}-{trainer}")


@pytest.mark.parametrize(("learner", "teachers", "trainer"), configs())
def test_every_config_is_isolated(learner, teachers, trainer):
    options = read("trainer", trainer)
    if options["accelerator"] == "gpu" and not torch.cuda.is_available():
        pytest.skip("no accelerator")
    must_isolate_learner(read("learner", learner), read("teachers", teachers, "training"), options, ["largest"])


@pytest.mark.parametrize("experiment", names("experiment"))
def test_every_experiment_is_isolated(experiment, tmp_path):
    for name in ("people", "others"):
        (tmp_path / f"{name}.csv").write_text(f"age,income\n1,low\n{ord(name[0])},high\n")
    tables = [f"data.path={tmp_path / 'people.csv'}", f"data.public={tmp_path / 'others.csv'}", "data.label=income"]
    own = tables if experiment in ("table", "table_scores") else []
    settings = settings_from_config(compose("run", [f"experiment={experiment}", *own]))
    must_isolate_learner(settings.learner, settings.training, settings.trainer, ["largest"])


class CoupledSGD(torch.optim.SGD):
    """Clips by a norm over all teachers of the stack."""

    def step(self, closure=None):
        torch.nn.utils.clip_grad_norm_([tensor for group in self.param_groups for tensor in group["params"]], 0.01)
        return super().step(closure)


def test_a_config_that_couples_teachers_fails(monkeypatch):
    monkeypatch.setattr("teacher_student.teachers.chunk.torch.optim.SGD", CoupledSGD)
    with pytest.raises(AssertionError, match="largest"):
        must_isolate_learner(read("learner", "mlp"), read("teachers", "adult", "training"), read("trainer", "cpu"), ["largest"])
