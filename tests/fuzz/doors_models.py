"""Doors of the rooms that train: teachers, student, pipeline. Networks are tiny, steps few."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from teacher_student import pipeline, privacy, student, teachers
from teacher_student.data.tables import TableEncoding
from teacher_student.pipeline.published import save_student

from .doors_data import tables
from .doors_privacy import BUDGET, MECHANISM, PARAMETERS
from .strategies import DELTA, EPSILON, ODD, OPTION, SHARE, Door, integers

NETWORK = partial(teachers.MLP, 3, 2, (4,))
FEATURES = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
SHARDED = {
    "features": FEATURES,
    "labels": np.array([0, 1, 0, 1, 1, 0, 0, 1]),
    "order": np.arange(8),
    "offsets": np.array([0, 3, 3, 8]),
}
RECORDS = {name: st.just(value) for name, value in SHARDED.items()}
TRAINING = {
    "optimizer": st.sampled_from(["sgd", "adam", "adamw"]),
    "learning_rate": st.sampled_from([0.1, 1e-3]),
    "momentum": SHARE,
    "weight_decay": st.sampled_from([0.0, 0.1, (0.1, 0.0, 0.2)]),
    "steps": integers(1, 3),
    "batch_size": integers(1, 3),
    "schedule": st.sampled_from(["constant", "cosine", "linear"]),
    "warmup_steps": integers(0, 2),
    "label_smoothing": SHARE,
    "clip_norm": st.sampled_from([None, 0.5]),
    "precision": st.sampled_from(["float32", "float64", "bfloat16"]),
    "engine": st.sampled_from(["auto", "batched", "vmap", "sequential"]),
    "chunk": OPTION,
    "augment": st.none(),
    "compile": st.just(False),
}


@functools.cache
def ensemble():
    settings = teachers.TrainingSettings(steps=1)
    return teachers.train_teachers(**SHARDED, network=NETWORK, settings=settings, report=lambda *_: None)


def training(**given):
    """Settings that are taken must say what they are."""
    made = teachers.TrainingSettings(**given)
    made.learning_rate_at(0)
    return made.to_dict()


def trained(name, value, **given):
    """Train with one odd setting of the trainer or of the training."""
    settings = teachers.TrainingSettings(steps=1, batch_size=2)
    options = {} if name is None else {name: value}
    return teachers.train_teachers(**given, network=NETWORK, settings=settings, trainer_options=options, report=lambda *_: None)


def learned(num_workers, **given):
    return teachers.train_learners(**given, learner=DecisionTreeClassifier(max_depth=1), num_workers=1)


def first_votes(points, block):
    return next(teachers.predict_votes(ensemble(), points, block=block), None)


def first_scores(points, block):
    return next(teachers.predict_scores(ensemble(), points, block=block), None)


def first_class_scores(points):
    return next(teachers.predict_class_scores(ensemble(), points), None)


def taught(seed, labels, **given):
    settings = student.StudentSettings(**given)
    targets = student.targets_from_labels(labels, 2, unanswered=settings.unanswered)
    return student.fit_student(NETWORK, FEATURES, targets, settings, seed=seed)


def corrected(labels, seed, by, **given):
    released = student.targets_from_labels(labels, 2, unanswered="drop")
    return student.boost_student(NETWORK(), FEATURES, released, student.StudentSettings(**given), by, seed=seed)


def noisy(noise, num_classes):
    return student.TransitionMatrix(noise, num_classes)(torch.zeros(3, num_classes))


def outvoted(law, scale):
    return student.NoisyArgmaxLikelihood(law, scale)(torch.zeros(3, 2))


def budgeted(**given):
    """The settings, and the account that they open."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        settings = pipeline.BudgetSettings(**given)
        settings.check("people", PARAMETERS, neighbours="add_remove", epsilon=1.0, delta=1e-5)
        return settings.open("people")


def labelled(content, out, **given):
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        np.save("votes.npy", content) if isinstance(content, np.ndarray) else Path("votes.npy").write_text(str(content))
        return pipeline.label_file(out=Path("out") if out is None else out, **given)


def in_a_folder(function, **files):
    """Call with a folder that holds something odd."""

    def call(content, **given):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for name in files["names"]:
                Path(name).write_bytes(content if isinstance(content, bytes) else str(content).encode())
            return function(**given)

    return call


def predicted(text, **given):
    """A table of the text, asked of a published student."""
    encoding = TableEncoding({"age": [0, 100]}, {"job": ["a", "b"]})
    described = {"class_names": ["no", "yes"], "feature_names": encoding.feature_names, "encoding": encoding}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("people.csv").write_bytes(text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass"))
        network = student.Standardized(NETWORK(), (3,))
        save_student(Path(), network, partial(teachers.MLP, hidden=(4,)), shape=(3,), **described)
        return pipeline.predict_file(**given)


CONTENT = st.one_of(
    st.binary(max_size=9), st.sampled_from([b"{}", b"null", b"[]", b"network: 3", b"query,label,answered\n0,1,1\n"]), ODD
)
OPTIONS = st.sampled_from([None, "accelerator", "precision", "gradient_clip_val", "callbacks", "max_epochs", "speed", "strategy"])
"""Not devices: a number would start as many processes."""
SHAPE = st.sampled_from([(3, 8, 8), [1, 5, 4]])
TEACHERS = {
    "TrainingSettings": Door(training, TRAINING),
    "TrainingSettings.from_dict": Door(
        teachers.TrainingSettings.from_dict, {"values": st.dictionaries(st.sampled_from(["steps", "chunk", "speed"]), ODD)}
    ),
    "MLP": Door(
        teachers.MLP,
        {
            "num_features": integers(),
            "num_classes": integers(2),
            "hidden": st.just((3,)),
            "dropout": SHARE,
            "initial_bias": st.none(),
            "prediction_offset": st.none(),
        },
    ),
    "LogisticRegression": Door(
        teachers.LogisticRegression,
        {
            "num_features": integers(),
            "num_classes": integers(2, 2),
            "initial_bias": st.just([0.0, 1.0]),
            "prediction_offset": st.none(),
        },
    ),
    "CNN": Door(
        teachers.CNN,
        {"image_shape": SHAPE, "num_classes": integers(2), "filters": st.just((2,)), "hidden": st.just((3,)), "dropout": SHARE},
    ),
    "ResNet": Door(
        teachers.ResNet, {"image_shape": SHAPE, "num_classes": integers(2), "blocks": st.just((1,)), "widths": st.just((4,))}
    ),
    "ShiftAndFlip": Door(teachers.ShiftAndFlip, {"padding": integers(0), "flip": st.booleans()}),
    "check_training": Door(
        lambda **given: teachers.check_training(NETWORK, teachers.TrainingSettings(), **given),
        {
            "record_shape": st.just((3,)),
            "num_teachers": integers(),
            "trainer_options": st.dictionaries(st.sampled_from(["devices", "num_nodes", "accelerator"]), ODD, max_size=1),
        },
        weight=0.3,
    ),
    "check_learner": Door(teachers.check_learner, {"learner": ODD}),
    "train_learners": Door(
        learned,
        {**RECORDS, "num_classes": integers(2), "master_seed": integers(0), "num_workers": st.just(1)},
        weight=0.5,
        kept=("num_workers",),
    ),
    "train_teachers": Door(
        trained, {**RECORDS, "name": OPTIONS, "value": ODD, "master_seed": integers(0)}, weight=0.4, kept=("name", "value")
    ),
    "load_teachers": Door(
        in_a_folder(lambda folder: teachers.load_teachers(folder, NETWORK), names=["manifest.json"]),
        {"content": CONTENT, "folder": st.just(".")},
        weight=0.3,
    ),
    "predict_votes": Door(first_votes, {"points": st.just(FEATURES), "block": integers()}, weight=0.3),
    "predict_class_scores": Door(first_class_scores, {"points": st.just(FEATURES)}, weight=0.3),
    "predict_scores": Door(first_scores, {"points": st.just(FEATURES), "block": integers()}, weight=0.3),
}
LABELS = st.just(np.array([0, 1, -1, 1, 0, 1, -2, 0]))
SETTINGS = {
    "unanswered": st.sampled_from(student.UNANSWERED),
    "epochs": integers(1, 2),
    "batch_size": integers(1, 4),
    "learning_rate": st.sampled_from([0.1, 1e-3]),
    "weight_decay": SHARE,
    "prior_precision": SHARE,
    "label_smoothing": SHARE,
    "average_decay": SHARE,
    "label_noise": st.sampled_from([0.0, 0.1, ((0.9, 0.1), (0.2, 0.8)), student.NoisyArgmaxLikelihood("laplace", 0.2)]),
    "method": st.sampled_from(sorted(student.METHODS)),
    "unlabeled_weight": SHARE,
    "ramp_up": SHARE,
}
METHOD_SETTINGS = {
    "confidence": SHARE,
    "rounds": integers(1, 2),
    "temperature": st.sampled_from([0.5, 1.0]),
    "mixing": st.sampled_from([0.75, 2.0]),
    "radius": st.sampled_from([0.2, 1.0]),
    "entropy_weight": SHARE,
}
AUGMENTATION = {
    "shift": integers(0, 2),
    "flip": st.booleans(),
    **dict.fromkeys(("jitter", "rotation", "contrast", "cutout", "corruption"), SHARE),
}
STUDENT = {
    "StudentSettings": Door(student.StudentSettings, SETTINGS),
    **{
        f"methods.{name}": Door(method, {field.name: METHOD_SETTINGS[field.name] for field in dataclasses.fields(method)})
        for name, method in student.METHODS.items()
    },
    "QuerySettings": Door(
        student.QuerySettings, {"order": st.sampled_from(student.ORDERS), "rounds": integers(), "total": OPTION}
    ),
    "targets_from_labels": Door(
        student.targets_from_labels,
        {"labels": LABELS, "num_classes": integers(2), "unanswered": st.sampled_from(student.UNANSWERED), "seed": integers(0)},
    ),
    "targets_from_scores": Door(
        student.targets_from_scores,
        {
            "scores": st.sampled_from([np.array([0.1, np.nan, 0.9]), np.full((3, 2), 0.4)]),
            "abstained": st.sampled_from([None, np.array([True, False, True])]),
            "unanswered": st.sampled_from(student.UNANSWERED),
            "seed": integers(0),
        },
    ),
    "Augmentation": Door(student.Augmentation, AUGMENTATION),
    "TransitionMatrix": Door(
        noisy, {"noise": st.sampled_from([0.0, 0.1, ((0.9, 0.1), (0.2, 0.8))]), "num_classes": integers(2, 2)}
    ),
    "NoisyArgmaxLikelihood": Door(outvoted, {"law": st.sampled_from(["gaussian", "laplace", "gumbel"]), "scale": EPSILON}),
    "VoteStep": Door(student.VoteStep, {"step": EPSILON}),
    "NewtonStep": Door(student.NewtonStep, {"step": EPSILON, "shrinkage": SHARE}),
    "boost_student": Door(
        corrected,
        {
            "labels": LABELS,
            "seed": integers(0),
            "by": st.sampled_from([student.VoteStep(2.0), student.NewtonStep(1.0, 0.1)]),
            **{name: SETTINGS[name] for name in ("epochs", "batch_size")},
        },
        weight=0.2,
    ),
    "fit_student": Door(taught, {"seed": integers(0), "labels": LABELS, **SETTINGS}, weight=0.2),
}
PIPELINE = {
    "BudgetSettings": Door(
        budgeted,
        {
            "ledger": st.sampled_from([None, "ledger.sqlite"]),
            "dataset": st.sampled_from([None, "people"]),
            "epsilon": st.sampled_from([None, 1.0]),
            "delta": st.sampled_from([None, 1e-5]),
            "filter": st.sampled_from(sorted(privacy.FILTERS)),
        },
    ),
    "BoostingSettings": Door(pipeline.BoostingSettings, {"rounds": integers(0), "step": EPSILON}),
    "attack_student": Door(
        pipeline.attack_student,
        {
            "mechanism": MECHANISM,
            **BUDGET,
            "cutoff": integers(),
            "worlds": st.just(60),
            "num_teachers": integers(2, 3),
            "error": DELTA,
            "seed": integers(0),
        },
        weight=0.01,
    ),
    "PrivacySettings": Door(
        pipeline.PrivacySettings,
        {
            **BUDGET,
            "mechanism": MECHANISM,
            "options": st.just({}),
            "cutoff": OPTION,
            "neighbours": st.none(),
            "bins": st.none(),
            "hyperparameters": st.sampled_from(privacy.HYPERPARAMETERS),
        },
    ),
    "RunSettings": Door(
        lambda **given: pipeline.RunSettings(
            data=None, learner=None, training=None, privacy=None, student_network=None, student=None, trainer={}, **given
        ),
        {"name": st.just("run"), "seed": integers(0), "num_teachers": integers()},
    ),
    "label_file": Door(
        labelled,
        {
            "content": st.just(np.array([[0] * 9, [1] * 9])),
            "out": st.none(),
            "predictions": st.just("votes.npy"),
            "counts": st.none(),
            "num_classes": integers(2),
            "num_teachers": st.just(9),
            "mechanism": MECHANISM,
            "options": st.just({}),
            **BUDGET,
            "cutoff": integers(),
            "neighbours": st.just("add_remove"),
            "population": st.none(),
            "hyperparameters": st.sampled_from(privacy.HYPERPARAMETERS),
            "budget": st.just(pipeline.BudgetSettings()),
        },
        weight=0.4,
        kept=("options", "out"),
    ),
    "select_file": Door(
        in_a_folder(pipeline.select_file, names=["counts.csv"]),
        {
            "content": st.one_of(st.just(b"900,0\n0,900\n"), CONTENT),
            "out": st.just(Path("out")),
            "predictions": st.none(),
            "counts": st.just(["counts.csv"]),
            "truth": st.none(),
            "num_classes": integers(2),
            "num_teachers": st.just(900),
            "repetitions": integers(2, 3),
            "mechanism": MECHANISM,
            "options": st.just({}),
            **BUDGET,
            "cutoff": integers(1, 5),
            "neighbours": st.just("add_remove"),
            "population": st.none(),
            "budget": st.just(pipeline.BudgetSettings()),
        },
        weight=0.2,
        kept=("options", "out"),
    ),
    "verify_folder": Door(
        in_a_folder(pipeline.verify_folder, names=["certificate.json", "labels.csv"]),
        {"content": CONTENT, "folder": st.just(Path())},
        weight=0.4,
        kept=("folder",),
    ),
    "predict_file": Door(
        predicted,
        {
            "text": tables(),
            "folder": st.just("."),
            "table": st.just("people.csv"),
            "out": st.just("predictions.csv"),
            "id": st.sampled_from([None, "person"]),
        },
        weight=0.4,
    ),
    "load_student": Door(
        in_a_folder(pipeline.load_student, names=["student.yaml", "student.safetensors"]),
        {"content": CONTENT, "folder": st.just(".")},
        weight=0.4,
    ),
}
