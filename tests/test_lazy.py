"""A module that moved is found under its old name, as the same object, with one line that says the new name."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from teacher_student.lazy import MOVED, MovedModules


@pytest.fixture
def forgotten():
    """Forgets that an old name was imported: the notice comes once in a process."""
    for old in MOVED:
        sys.modules.pop(old, None)


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_module_that_it_became(old, forgotten):
    with pytest.warns(FutureWarning, match=f"{old} is now {MOVED[old]}"):
        module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert module.__spec__.name == module.__name__ == MOVED[old]
    assert importlib.import_module(old) is module  # without another notice


def test_modules_below_a_package_that_moved_are_found():
    code = """
from teacher_student.theory.pac import log_growth
from teacher_student import theory
print(theory.__name__, log_growth.__module__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["research.theory", "research.theory.pac"]
    assert "FutureWarning: teacher_student.theory is now research.theory" in done.stderr


def test_other_names_are_left_to_others():
    assert MovedModules().find_spec("teacher_student.privacy.certificates") is None
    with pytest.raises(ModuleNotFoundError, match=r"teacher_student\.nowhere"):
        importlib.import_module("teacher_student.nowhere")


def test_an_old_public_name_is_the_new_one():
    from teacher_student import pipeline

    with pytest.warns(FutureWarning, match=r"pipeline\.CorrectionSettings is now BoostingSettings"):
        assert pipeline.CorrectionSettings is pipeline.BoostingSettings
