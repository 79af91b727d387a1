"""The walls of the house: which room may import which, and what a bare import may pull in."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import teacher_student

PACKAGE = Path(teacher_student.__file__).parent
RESEARCH = PACKAGE.parent / "research"
SHARED = {"arguments", "labels", "lazy", "version"}
MAY_IMPORT = {
    "privacy": set(),
    "planning": {"privacy"},
    "mechanisms": {"privacy"},
    "aggregation": {"privacy", "planning", "mechanisms"},
    "auditing": {"privacy", "mechanisms", "aggregation"},
    "data": set(),
    "teachers": set(),
    "student": set(),
    "monitoring": set(),
}
"""Rooms, and the other rooms that each may import; all may import `SHARED`. The composition root may import everything."""
ROOT = {"pipeline", "app", "__init__", "__main__"}
LIGHT = {"privacy", "planning", "mechanisms", "aggregation", "auditing"}
HEAVY = {"torch", "torchvision", "lightning", "sklearn", "matplotlib", "hydra", "omegaconf", "tensorboard"}


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path, *, at_once: bool = False) -> set[str]:
    """Dotted names of all modules that a file imports anywhere in it, or `at_once` at its top level; relative ones resolved."""
    found: set[str] = set()
    parent = ".".join(path.relative_to(PACKAGE.parent).parent.parts)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if at_once else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            levels = parent.split(".")
            base = ".".join(levels[: len(levels) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names if module == "teacher_student"}
    return found


def rooms_imported(path: Path) -> set[str]:
    names = {name.split(".")[1] for name in imported(path) if name.startswith("teacher_student.")}
    own = room_of(path) if path.is_relative_to(PACKAGE) else "research"
    return names & (set(MAY_IMPORT) | {"pipeline", "app"}) - {own}


def test_every_room_has_its_rule() -> None:
    assert {room_of(path) for path in files()} <= set(MAY_IMPORT) | SHARED | ROOT


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    if room_of(path) not in ROOT:
        assert rooms_imported(path) <= MAY_IMPORT.get(room_of(path), set())


def test_only_the_composition_root_knows_every_room() -> None:
    knowing = {room_of(path) for path in files() if len(rooms_imported(path)) > 3}
    assert knowing <= ROOT


def test_only_the_app_imports_hydra() -> None:
    importing = {
        room_of(path) for path in files() if any(name.split(".")[0] in {"hydra", "omegaconf"} for name in imported(path))
    }
    assert importing == {"app"}


@pytest.mark.parametrize(
    "path", [path for path in files() if room_of(path) in LIGHT], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_light_rooms_import_nothing_heavy(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & HEAVY


def import_graph(room: str) -> dict[str, set[str]]:
    """For each module of a room, those of it that it imports anywhere, but for the room itself, which hands names on."""
    paths = [path for path in (PACKAGE / room).rglob("*.py") if path != PACKAGE / room / "__init__.py"]
    modules = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    return {name: (imported(path) & set(modules)) - {name} for name, path in modules.items()}


@pytest.mark.parametrize("room", sorted({room_of(path) for path in files() if path.parent != PACKAGE}))
def test_no_modules_import_each_other(room: str) -> None:
    list(graphlib.TopologicalSorter(import_graph(room)).static_order())  # a CycleError names the circle


def imports_research(path: Path, *, at_once: bool = False) -> bool:
    return any(name.split(".")[0] == "research" for name in imported(path, at_once=at_once))


def test_only_a_verb_imports_research_and_only_when_it_is_called() -> None:
    assert [path for path in files() if imports_research(path)] == [PACKAGE / "app" / "verbs.py"]
    assert not imports_research(PACKAGE / "app" / "verbs.py", at_once=True)


@pytest.mark.parametrize("path", sorted((RESEARCH / "theory").glob("*.py")), ids=lambda path: path.name)
def test_theory_needs_only_the_privacy_of_the_package(path: Path) -> None:
    assert rooms_imported(path) <= {"privacy"}
    assert not {name.split(".")[0] for name in imported(path)} & HEAVY


def test_there_is_no_drawer_for_everything() -> None:
    assert not [path for path in files() if {"util", "utils", "helpers", "misc", "common"} & set(path.with_suffix("").parts)]


LABEL = """
import sys
import teacher_student as ts
release = ts.label([[0] * 4000, [1] * 4000], num_classes=2, epsilon=1.0, delta=1e-5, num_teachers=4000)
assert release.labels.tolist() == [0, 1]
assert ts.LabelSession(num_classes=2, epsilon=1.0, delta=1e-5, num_teachers=4000).remaining_cutoff == 50
ts.label_soft([[0.5] * 9], num_teachers=9)
release.certificate.verify()
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""


def test_label_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LABEL], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & HEAVY


def test_a_bare_import_loads_not_even_numerics() -> None:
    code = "import sys, teacher_student; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & (HEAVY | {"scipy", "opendp", "dp_accounting"})
