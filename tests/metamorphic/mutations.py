"""What may be done to one record of private data: of numbers, of a table, of image folders. The mutations are named."""

from __future__ import annotations

import csv
import io
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

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


def write_tables(folder: Path, _: pytest.MonkeyPatch, change: Callable[[Rows], Rows] | None) -> None:
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


def write_folders(folder: Path, _: pytest.MonkeyPatch, change: Callable[[Path], None] | None) -> None:
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
