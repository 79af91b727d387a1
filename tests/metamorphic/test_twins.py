"""The comparison of `test_loaders.py` fails where it must: on twins of the program that have the faults of earlier versions."""

from __future__ import annotations

import csv
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.data import tables
from teacher_student.monitoring.console import Display
from teacher_student.pipeline import stages

from .loaders import LOADERS
from .pairs import CHEAP, World


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world") / "here")


def more_teachers_than_records(patch):
    """Fault 1: k is compared with n, which is private."""
    shard = stages.shard_dataset

    def sharded(dataset, num_shards):
        if num_shards > len(dataset.private_labels):
            raise ArgumentError(f"teachers.number must be at most the number of records, got {num_shards}")
        return shard(dataset, num_shards)

    patch.setattr(stages, "shard_dataset", sharded)


def comparison_before_the_release(patch):
    """Fault 2: a model without privacy becomes NaN, and its figures stop the run before the student is saved."""
    teach = stages.teach_student

    def taught(run, *arguments, **keywords):
        student = teach(run, *arguments, **keywords)
        with np.errstate(all="ignore"):
            weights = run.dataset.private_features.reshape(len(run.dataset.private_features), -1).sum(axis=0) * np.float32(10)
        int(np.abs(weights).max() * 0.0)  # raises ValueError on NaN, as the calibration error did
        return student

    patch.setattr(stages, "teach_student", taught)


def teacher_that_stops_the_run(patch):
    """Fault 3: an exception of one teacher of a stack is not contained."""
    train = stages.train

    def trained(run, *arguments, **keywords):
        if np.isnan(run.dataset.private_features).any():
            raise RuntimeError("linalg.cholesky: (Batch element 7): The factorization could not be completed")
        return train(run, *arguments, **keywords)

    patch.setattr(stages, "train", trained)


def table_that_one_cell_refuses(patch):
    """Fault 4: the csv module's limit for a cell, and strict UTF-8."""

    def read(argument, path, **_):
        try:
            with Path(path).open(encoding="utf-8-sig", newline="") as file:
                header, *records = csv.reader(file, strict=True, skipinitialspace=True)
        except (UnicodeDecodeError, csv.Error) as error:
            raise ArgumentError(f"{argument} must be a readable table, got {path}: {error}") from error
        return {name: [record[place] for record in records] for place, name in enumerate(header)}

    patch.setattr(tables, "columns_of", read)


def times_of_the_clock(patch):
    """Fault 5: released files keep the time at which they were written."""
    patch.setattr(os, "utime", lambda *_, **__: None)


def tables_that_share_a_row(patch):
    """Fault 8, mended badly: a row that the private and the public table share is refused instead of told to the keeper."""
    build = tables.PrivateDataset

    def built(**fields):
        if any((fields["private_features"] == point).all(axis=1).any() for point in fields["public_features"]):
            raise ArgumentError("data.public must share no row with data.path")
        return build(**fields)

    patch.setattr(tables, "PrivateDataset", built)


def tables_that_share_a_row_noted(patch):
    """The same, with a word on the console instead."""
    build = tables.PrivateDataset

    def built(**fields):
        if any((fields["private_features"] == point).all(axis=1).any() for point in fields["public_features"]):
            print("Private note: a row of data.path is in data.public")
        return build(**fields)

    patch.setattr(tables, "PrivateDataset", built)


def ranges_of_private_rows(patch):
    """Fault 8: the encoding, which is published, is computed from the private table."""
    encoding = tables._encoding

    def from_private(ranges, categories, public, *others):
        private = tables.columns_of("path", Path("inputs/private.csv"))
        return encoding(ranges, categories, {name: private[name] for name in public}, *others)

    patch.setattr(tables, "_encoding", from_private)


def records_on_the_console(patch):
    stage = Display.stage
    shard = stages.shard_dataset
    seen = []
    patch.setattr(stages, "shard_dataset", lambda dataset, k: seen.append(len(dataset.private_labels)) or shard(dataset, k))
    patch.setattr(Display, "stage", lambda self, name, total=None: stage(self, f"{name} {seen or ''}", total))


def _on_training(patch, act):
    train = stages.train

    def trained(run, *arguments, **keywords):
        act(run)
        return train(run, *arguments, **keywords)

    patch.setattr(stages, "train", trained)


def _unusable(run):
    return not np.isfinite(run.dataset.private_features).all()


def warning_about_a_number(patch):
    _on_training(
        patch, lambda run: _unusable(run) and warnings.warn("invalid value encountered in cast", RuntimeWarning, stacklevel=1)
    )


def word_of_a_library(patch):
    """Written past Python, as compiled code does."""
    _on_training(patch, lambda run: _unusable(run) and os.write(2, b"[W] NaN in the input\n"))


def file_beside_the_release(patch):
    _on_training(patch, lambda run: _unusable(run) and (run.folder.path / "abstained").touch())


def mode_of_the_release(patch):
    _on_training(patch, lambda run: _unusable(run) and run.folder.release.chmod(0o750))


def exit_code(patch):
    _on_training(patch, lambda run: _unusable(run) and sys.exit(3))


TWINS = {
    "fault 1": (more_teachers_than_records, "blobs", "one removed", False),
    "fault 2": (comparison_before_the_release, "blobs", "one 3e38", False),
    "fault 3": (teacher_that_stops_the_run, "blobs", "one NaN", False),
    "fault 4, long": (table_that_one_cell_refuses, "table", "note long", False),
    "fault 4, bytes": (table_that_one_cell_refuses, "table", "note not UTF-8", False),
    "fault 5": (times_of_the_clock, "blobs", "another class", False),
    "fault 5, nothing answered": (times_of_the_clock, "blobs", "another class", True),
    "fault 8, refused": (tables_that_share_a_row, "table", "a public point", False),
    "fault 8, on the console": (tables_that_share_a_row_noted, "table", "a public point", False),
    "fault 8, ranges": (ranges_of_private_rows, "table", "age 3e38", False),
    "n on the console": (records_on_the_console, "blobs", "one added", False),
    "a warning": (warning_about_a_number, "blobs", "infinity", False),
    "a library's word": (word_of_a_library, "blobs", "infinity", False),
    "a file": (file_beside_the_release, "blobs", "NaN", False),
    "a mode": (mode_of_the_release, "blobs", "NaN", False),
    "an exit code": (exit_code, "blobs", "NaN", False),
}


DEFAULT = {"fault 1", "fault 2", "fault 4, bytes", "fault 5", "fault 8, ranges", "a warning", "a library's word"}
"""One for each way in which a fault shows: code and message, figures, a loader, times, released files, both ways to a console."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in DEFAULT)) for name in TWINS])
def test_a_twin_is_told_apart(name, world):
    twin, loader, mutation, tied = TWINS[name]
    one, other = (
        world.outcome(LOADERS[loader], change, CHEAP, tied=tied, twin=twin)
        for change in (None, LOADERS[loader].mutations[mutation])
    )
    assert one.code == (2 if tied else 0), one.err
    assert one.differences(other) != []
