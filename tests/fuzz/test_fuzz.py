"""Whatever a public function is given, it returns or refuses in one line: no other error, no warning, no hang, nothing spent.

The default suite tries some inputs for each door, always the same; `pytest tests/fuzz -m slow -rP` tries more and prints how
many: `FUZZ_EXAMPLES`, 100 unless set, for each door of weight 1. With 400 they are over 20,000.
"""

from __future__ import annotations

import importlib
import inspect
import os
import signal

import pytest

from teacher_student.arguments import ArgumentError

from .doors_answers import AGGREGATION, MECHANISMS
from .doors_data import DATA
from .doors_models import PIPELINE, STUDENT, TEACHERS
from .doors_privacy import AUDITING, PLANNING, PRIVACY, THEORY
from .strategies import SLOW, always_the_same, arguments

ROOMS = {
    "aggregation": AGGREGATION,
    "auditing": AUDITING,
    "data": DATA,
    "mechanisms": MECHANISMS,
    "pipeline": PIPELINE,
    "planning": PLANNING,
    "privacy": PRIVACY,
    "student": STUDENT,
    "teachers": TEACHERS,
    "theory": THEORY,
}
DOORS = {f"{room}.{name}": door for room, doors in ROOMS.items() for name, door in doors.items()}
MADE_BY_US = {
    "AuditReport", "BasicFilter", "Bound", "Claim", "Consistency", "Estimate", "Filter", "GaussianFilter", "LearnerEnsemble",
    "LabelSpec", "Mechanism", "MechanismSpec",
    "Noise", "NoisyMaxParameters", "Parameters", "QueryPair", "QueryPlan", "RenyiFilter", "RunResult", "SampleSizes",
    "ShardManifest", "Shards", "Standardized", "Student", "SystemNoise", "Targets", "TeacherEnsemble",
    "ThresholdParameters", "Choices", "Plan", "PublicSizes", "RecordPlan",
}  # fmt: skip
"""Results, base classes and what factories build: users do not fill in their fields."""
USERS_OWN_CODE = {
    "consistency_of_randomization", "mean_score", "on_average_stability", "strong_quality", "weak_quality", "run_task", "sweep",
    "plan_queries", "outcomes", "load_label_private", "run", "group_normalized", "next_points", "predict_probabilities",
    "representatives", "resample", "register", "PrivateClassifier",
}  # fmt: skip
"""They take functions, networks or targets, and numbers that other doors check. `run` is behind the command line's own fuzzer;
scikit-learn's checks try `PrivateClassifier`."""
HANG = 120
LEAST = 5
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
inputs = {"tried": 0, "many": 0}


def hang(*_):
    raise AssertionError(f"no answer within {HANG} s")


def answers_or_refuses(door, values):
    """Make the call; only a refusal in one line may come out of it."""
    inputs["tried"] += 1
    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(HANG)
    said = "nothing"
    try:
        door.call(**values)
    except ArgumentError as refusal:
        said = str(refusal)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert len(said.splitlines()) == 1


def try_inputs(door, count):
    """Always the same `count` inputs."""

    @always_the_same(count, arguments(door))
    def trying(values):
        answers_or_refuses(door, values)

    trying()


@pytest.mark.parametrize("name", [name for name, door in DOORS.items() if door.weight >= SLOW])
def test_a_public_function_answers_or_refuses_in_one_line(name):
    door = DOORS[name]
    try_inputs(door, max(LEAST, round(25 * door.weight)))


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
def test_many_inputs(name):
    before = inputs["tried"]
    try_inputs(DOORS[name], max(LEAST, round(EXAMPLES * DOORS[name].weight)))
    inputs["many"] += inputs["tried"] - before


@pytest.mark.slow
def test_inputs_were_many():
    """After the doors above, in the same process; those that crashed have failed."""
    print(f"\n{inputs['many']:,} inputs tried through {len(DOORS)} doors")
    assert EXAMPLES < 400 or inputs["many"] >= 20_000


def public(room):
    package = {"": "teacher_student", "theory": "research.theory"}.get(room, f"teacher_student.{room}")
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value) and not (inspect.isclass(value) and issubclass(value, Exception)):
            yield name


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_every_public_function_has_a_door(room):
    known = {name for doors in ROOMS.values() for name in doors} | MADE_BY_US | USERS_OWN_CODE
    assert set(public(room)) <= known


def test_a_function_that_crashes_is_caught():
    broken = type(DOORS["aggregation.count_votes"])(lambda num: 1 // num, {"num": DOORS["theory.num_bins"].sound["width"]})
    with pytest.raises((ZeroDivisionError, TypeError)):
        try_inputs(broken, 200)
