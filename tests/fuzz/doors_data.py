"""Doors of the data room: records, shards, tables with odd cells, folders with odd images."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from teacher_student import data
from teacher_student.data import PrivateDataset, ShardManifest

from .strategies import ODD_TEXTS, SHARE, Door, integers

SEED, NAMES = integers(0, 3), st.just(("no", "yes"))
KEY = st.just(b"0123456789abcdef")
IDS = st.sampled_from([np.arange(9), np.array([f"p{i}" for i in range(9)]), list(range(9)), np.arange(9.0), [b"a", b"b"]])
TABLE = st.just(np.zeros((6, 2), np.float32))
LABELS = st.just(np.array([0, 1, 1, 0, 1, 0]))
SIZES = {"num_private": integers(1, 20), "num_public": integers(1, 9), "num_evaluation": integers(1, 9), "seed": SEED}
IMAGES = {"split_seed": SEED}
VIEW = {"mean": SHARE, "std": st.sampled_from([0.5, 1.0]), "flatten": st.booleans()}
PROJECTION = {
    "components": st.sampled_from([None, 1, 2]),
    "whiten": st.sampled_from([0.0, 0.5, 1]),
    "scale": st.sampled_from([None, 0.01]),
    "student_columns": st.booleans(),
}
CELLS = st.one_of(st.sampled_from(["1", "2.5", "no", "yes", "", "nan", "inf", "1e999", '"', "a,b", "\n", "\x00", "é"]), ODD_TEXTS)


def dataset(**changes):
    values = {
        "name": "made",
        "num_classes": 2,
        "class_names": ("no", "yes"),
        "private_features": np.zeros((6, 2)),
        "private_labels": np.array([0, 1, 1, 0, 1, 0]),
        "private_ids": np.arange(6),
        "public_features": np.zeros((4, 2)),
    }
    return PrivateDataset(**{**values, **changes})


def images():
    rows = np.random.default_rng(0).random((6, 1, 2, 2))
    return dataset(private_features=rows, public_features=rows[:4])


def sharded(dataset, num_shards, key):
    shards, manifest = data.shard_dataset(dataset, num_shards, key)
    with tempfile.TemporaryDirectory() as folder:
        manifest.save(Path(folder) / "shards.json")
        return ShardManifest.load(Path(folder) / "shards.json").remake(dataset), shards


def from_file(text, **options):
    """A table of the text, another that is sound."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        raw = text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass")
        Path("people.csv").write_bytes(raw)
        Path("others.csv").write_text("age,job\n30,a\n40,b\n")
        return data.load_table(**options)


@st.composite
def tables(draw):
    """A table of people; some cells are odd, some rows too short or too long."""
    rows = [["age", "job", "pays", "person"], ["30", "a", "no", "1"], ["40", "b", "yes", "2"], ["50", "a", "no", "3"]]
    for _ in range(draw(integers(0, 2))):
        row = draw(st.integers(0, 3))
        place = draw(st.integers(0, 4))
        rows[row][place : place + draw(st.integers(0, 1))] = [str(draw(CELLS))]
    return "\n".join(",".join(row) for row in rows) + draw(st.sampled_from(["", "\n", "\n\n", "\x00", "\r\n"]))


def from_folder(content, **options):
    """Images of two classes, one of them odd."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for place in ("private/no", "private/yes", "public"):
            Path(place).mkdir(parents=True)
            Image.new("RGB", (5, 4)).save(f"{place}/one.png")
        Path("private/no/odd.png").write_bytes(content if isinstance(content, bytes) else b"")
        return data.load_image_folder(**options)


def from_torch(private, public, **options):
    import torch
    from torch.utils.data import TensorDataset

    made = TensorDataset(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0]))
    return data.from_torch(made if private is None else private, made if public is None else public, **options)


def seen_through(layer, **changes):
    from torch import nn

    return data.encode(dataset(**changes), nn.Sequential(nn.Linear(2, 3), nn.Tanh()), layer=layer)


PIXEL = bytes.fromhex("89504e470d0a1a0a")
DATA = {
    "assign_shards": Door(data.assign_shards, {"ids": IDS, "num_shards": integers(), "key": KEY}),
    "make_shards": Door(data.make_shards, {"ids": IDS, "num_shards": integers(1, 3), "key": KEY}),
    "shard_dataset": Door(
        sharded,
        {"dataset": st.just(dataset()), "num_shards": integers(1, 6), "key": st.one_of(KEY, st.none())},
        kept=("dataset",),
    ),
    "PrivateDataset": Door(
        dataset,
        {
            "name": st.just("made"),
            "num_classes": integers(2, 2),
            "class_names": NAMES,
            "private_features": TABLE,
            "private_labels": LABELS,
            "private_ids": st.sampled_from([None, np.arange(6), np.array(list("abcdef"))]),
            "private_users": st.sampled_from([None, np.array([0, 0, 1, 1, 2, 2])]),
            "public_features": TABLE,
            "evaluation_features": TABLE,
            "evaluation_labels": LABELS,
            "feature_names": st.sampled_from([None, ("a", "b")]),
            "neighbours": st.sampled_from(["", *data.NEIGHBOURS]),
            "evaluation_public": st.booleans(),
            "student_public_features": st.none(),
        },
    ),
    "load_table": Door(
        from_file,
        {
            "text": tables(),
            "path": st.just("people.csv"),
            "label": st.just("pays"),
            "classes": st.just(["no", "yes"]),
            "id": st.sampled_from([None, "person"]),
            "public": st.just("others.csv"),
            "evaluation": st.none(),
            "evaluation_public": st.none(),
            "ranges": st.sampled_from([None, {"age": [0, 100]}]),
            "categories": st.sampled_from([None, {"job": ["a", "b"]}]),
        },
        weight=2,
    ),
    "load_image_folder": Door(
        from_folder,
        {
            "content": st.one_of(st.just(PIXEL), st.binary(max_size=20), st.binary(max_size=20).map(PIXEL.__add__)),
            "private": st.just("private"),
            "public": st.just("public"),
            "evaluation": st.none(),
            "evaluation_public": st.none(),
            "size": integers(1, 8),
            "colour": st.booleans(),
            "class_names": st.just(["no", "yes"]),
            "ids": st.sampled_from(["path", "none"]),
        },
        weight=0.4,
    ),
    "from_torch": Door(
        from_torch,
        {
            "private": st.none(),
            "public": st.none(),
            "class_names": NAMES,
            "ids": st.sampled_from([None, np.arange(4)]),
            "name": st.just("x"),
        },
        weight=0.4,
        kept=("private", "public"),
    ),
    "gaussian_blobs": Door(
        data.gaussian_blobs, {**SIZES, "num_classes": integers(2), "dimension": integers(), "separation": SHARE}
    ),
    "halfspaces": Door(data.halfspaces, {**SIZES, "dimension": integers(), "label_noise": SHARE}),
    "thresholds": Door(data.thresholds, {**SIZES, "threshold": SHARE, "label_noise": SHARE}),
    "low_label_noise": Door(data.low_label_noise, {**SIZES, "gap": SHARE}),
    "low_label_noise_probability": Door(data.low_label_noise_probability, {"points": st.just(np.zeros(3)), "gap": SHARE}),
    "load": Door(
        lambda name, queries, number: data.load(
            name, num_private=number, view=None if queries is None else data.LabelsOnly(number=queries)
        ),
        {
            "name": st.sampled_from(["blobs", "thresholds", "adult?"]),
            "queries": st.sampled_from([None, 3]),
            "number": integers(5, 9),
        },
    ),
    "fingerprint_records": Door(
        data.fingerprint_records, {"dataset": st.just(dataset()), "key": KEY}, weight=0.3, kept=("dataset",)
    ),
    "project": Door(data.project, {"dataset": st.just(dataset()), **PROJECTION}, weight=0.3, kept=("dataset",)),
    "View": Door(lambda **settings: data.View(**settings).of(images()), VIEW, weight=0.3),
    "Projection": Door(lambda **settings: data.Projection(**settings).of(images()), {**VIEW, **PROJECTION}, weight=0.3),
    "Encoder": Door(
        lambda **settings: data.Encoder(**settings).of(images()),
        {**VIEW, **PROJECTION, "encoder": st.none(), "layer": st.none()},
        weight=0.3,
    ),
    "LabelsOnly": Door(
        lambda **settings: data.LabelsOnly(**settings).load(dataset),
        {"number": integers(1, 4), "seed": SEED, "view": st.sampled_from([data.View(), data.Projection(components=1)])},
        weight=0.3,
    ),
    "encode": Door(
        seen_through,
        {"private_features": TABLE, "public_features": TABLE, "layer": st.sampled_from([None, "0"])},
        weight=0.4,
    ),
    "pretrained": Door(
        data.pretrained, {"name": st.just("digits"), "steps": integers(1, 2), "seed": SEED}, weight=0.02, kept=("steps",)
    ),
    "load_digits": Door(
        data.load_digits, {"num_private": integers(1, 900), "num_public": integers(1, 400), **IMAGES}, weight=0.2
    ),
    "load_mnist5000": Door(
        data.load_mnist5000, {"num_private": integers(1, 900), "num_public": integers(1, 400), **IMAGES}, weight=0.02
    ),
    "load_adult": Door(
        data.load_adult,
        {
            "split_seed": SEED,
            "pool": integers(1, 900),
            "curves": st.sampled_from(["none", "steps"]),
        },
        weight=0.02,
    ),
    "load_torchvision": Door(
        data.load_torchvision,
        {"name": st.sampled_from(["mnist", "svhn", "cifar10"]), "root": st.just("nowhere"), "download": st.just(False), **IMAGES},
        weight=0.2,
        kept=("download", "root"),
    ),
}
