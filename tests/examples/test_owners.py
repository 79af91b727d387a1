"""The example `owners`: its rules, its session and its student. None of these tests needs Flower."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import teacher_student as ts
from teacher_student.aggregation import session as session_module
from teacher_student.aggregation.ledger import Ledger
from teacher_student.mechanisms import GeneratorNoise, SystemNoise

EXAMPLE = Path(__file__).parents[2] / "examples" / "owners"
POINTS, OWNERS = 40, 30


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "owners"]:
        del sys.modules[name]


def module(name: str) -> ModuleType:
    return importlib.import_module(f"owners.{name}")


def settings_of(folder: Path, **changes: Any) -> Any:
    config = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    plain = {"secure": False, "noise": "server", "teachers": 1, "unit": "record", "mechanism": "exponential"}
    changes = {"folder": str(folder), "owners": OWNERS, "least": 3, "classes": 3, "cutoff": POINTS, **plain, **changes}
    return module("rules").Settings.from_config({**config, **changes})


def votes_of_owners(seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-1, 3, (POINTS, OWNERS)).astype(np.int16)


class FixedNoise(SystemNoise):
    """The same noise in every session, and said to be the operating system's."""

    def __init__(self) -> None:
        self._fixed = GeneratorNoise(np.random.default_rng(7))

    def discrete_laplace(self, scale: Any, size: int) -> Any:
        return self._fixed.discrete_laplace(scale, size)

    def discrete_gaussian(self, scale: Any, size: int) -> Any:
        return self._fixed.discrete_gaussian(scale, size)

    def two_geometrics(self, scale: Any, size: int) -> Any:
        return self._fixed.two_geometrics(scale, size)


@pytest.mark.parametrize(
    ("mechanism", "unit", "options"),
    [
        ("stability", "record", {}),
        ("gnmax", "record", {}),
        ("gnmax", "owner", {"neighbours": "zero_out", "vote_change": "withdrawn"}),
        ("permute_and_flip", "owner", {"neighbours": "zero_out", "vote_change": "withdrawn"}),
    ],
)
@pytest.mark.parametrize("as_counts", [False, True])
def test_labels_are_those_of_label_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str, unit: str, options: dict[str, Any], as_counts: bool
) -> None:
    monkeypatch.setattr(session_module, "SystemNoise", FixedNoise)
    settings, votes = settings_of(tmp_path, mechanism=mechanism, unit=unit, epsilon=8.0, cutoff=9), votes_of_owners()
    given = {"counts": ts.aggregation.count_votes(votes, 3)} if as_counts else {"votes": votes}
    found = module("answering").answer(settings, **given)
    asked = {"num_classes": 3, "epsilon": 8.0, "delta": 1e-5, "mechanism": mechanism, "cutoff": 9, "num_teachers": OWNERS}
    expected = ts.label(votes, **asked, **options)
    assert found.labels.tolist() == expected.labels.tolist()
    found.save(tmp_path / "found")
    expected.save(tmp_path / "expected")
    for name in ("labels.csv", "certificate.json"):
        assert (tmp_path / "found" / name).read_bytes() == (tmp_path / "expected" / name).read_bytes()


def test_a_server_that_is_started_again_finds_its_answers_and_pays_once(tmp_path: Path) -> None:
    answering, settings = module("answering"), settings_of(tmp_path)
    assert answering.recorded(settings, POINTS) is None
    assert not list(tmp_path.rglob("*.sqlite"))  # looking opens no session
    first = answering.answer(settings, votes_of_owners())
    again = answering.answer(settings, votes_of_owners(seed=1))  # the owners have other models by now
    assert again.labels.tolist() == first.labels.tolist() == answering.recorded(settings, POINTS).labels.tolist()
    assert len(Ledger(tmp_path / "ledger.sqlite").entries("owners")) == 1


def test_what_exceeds_the_budget_is_refused_before_any_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering, budget = module("answering"), {"budget_epsilon": 1.5, "budget_delta": 1e-4}
    answering.answer(settings_of(tmp_path, **budget), votes_of_owners())
    for law in ("discrete_laplace", "discrete_gaussian", "two_geometrics"):
        monkeypatch.setattr(SystemNoise, law, lambda *given: pytest.fail("noise was drawn"))
    with pytest.raises(ts.ArgumentError, match="budget"):
        answering.answer(settings_of(tmp_path, name="second", **budget), votes_of_owners())
    assert len(Ledger(tmp_path / "ledger.sqlite").entries("owners")) == 1


def honest(owner: int, column: Any) -> Any:
    return module("rules").Answer(owner, "question", column)


HOSTILE = {
    "an error": (None, None),
    "nothing": ("question", None),
    "another shape": ("question", np.zeros(POINTS + 1, dtype=np.int16)),
    "a table": ("question", np.zeros((POINTS, 2), dtype=np.int16)),
    "fractions": ("question", np.zeros(POINTS)),
    "words": ("question", np.array(["a"] * POINTS)),
    "a class too many": ("question", np.full(POINTS, 3)),
    "less than an abstention": ("question", np.full(POINTS, -2)),
    "one value of 2^62": ("question", np.array([0] * (POINTS - 1) + [2**62])),
    "the answer to another question": ("another", np.zeros(POINTS, dtype=np.int16)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_answer_counts_as_abstaining_and_moves_one_column(tmp_path: Path, kind: str) -> None:
    rules, settings, votes = module("rules"), settings_of(tmp_path), votes_of_owners()
    asked = list(range(100, 100 + OWNERS))
    answers = [honest(owner, votes[:, place]) for place, owner in enumerate(asked)]
    answers[5] = rules.Answer(105, *HOSTILE[kind])
    table = rules.gather(answers, asked, "question", settings, POINTS)
    assert (table[:, 5] == ts.ABSTAIN).all()
    others = np.delete(np.arange(OWNERS), 5)
    assert (table[:, others] == votes[:, others]).all()
    # It is there all the same: what an owner sends never decides whether a round is repeated.
    least = settings_of(tmp_path, least=OWNERS)
    assert rules.gather(answers, asked, "question", least, POINTS) is not None


def test_who_answers_twice_abstains_and_who_was_not_asked_is_not_there(tmp_path: Path) -> None:
    rules, settings, votes = module("rules"), settings_of(tmp_path), votes_of_owners()
    asked = list(range(OWNERS))
    answers = [honest(owner, votes[:, owner]) for owner in asked]
    table = rules.gather([*answers, honest(4, votes[:, 4]), honest(999, votes[:, 0])], asked, "question", settings, POINTS)
    assert (table[:, 4] == ts.ABSTAIN).all()
    assert (np.delete(table, 4, axis=1) == np.delete(votes, 4, axis=1)).all()


def test_too_few_owners_repeat_the_round_and_nothing_is_spent(tmp_path: Path) -> None:
    rules, settings = module("rules"), settings_of(tmp_path, least=OWNERS - 1)
    asked, votes = list(range(OWNERS)), votes_of_owners()
    answers = [honest(owner, votes[:, owner]) for owner in asked]
    assert rules.gather(answers[2:], asked, "question", settings, POINTS) is None
    assert rules.gather([*answers[2:], honest(999, votes[:, 0])], asked, "question", settings, POINTS) is None
    late = rules.gather(answers[1:], asked, "question", settings, POINTS)
    assert (late[:, 0] == ts.ABSTAIN).all()
    assert not list(tmp_path.iterdir())
    with pytest.raises(ts.ArgumentError, match="owners must be at least the 31"):
        rules.gather(answers, range(OWNERS + 1), "question", settings, POINTS)


def test_an_owner_s_own_predictions_become_votes() -> None:
    vote = module("rules").vote
    assert vote([0, 2, 3, -7], 4, 3).tolist() == [0, 2, -1, -1]
    for bad in (None, [0.0, 1.0], [0], "ab", [[0, 1]]):
        assert vote(bad, 2, 3).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"least": OWNERS + 1}, "least"),
        ({"unit": "hospital"}, "unit"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"name": "../elsewhere"}, "name"),
        ({"noise": "owners"}, "noise"),
        ({"teachers": 5}, "teachers"),
        ({"noise": "owners", "secure": True, "unit": "owner"}, "noise"),
        ({"noise": "owners", "secure": True, "colluding": 3}, "colluding"),
    ],
)
def test_settings_that_protect_nobody_are_refused_in_one_line(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(ts.ArgumentError, match=f"^{says} ") as caught:
        settings_of(tmp_path, **change)
    assert "\n" not in str(caught.value)
    with pytest.raises(ts.ArgumentError, match="must be in the run's configuration"):
        module("rules").Settings.from_config({"name": "first"})


def test_the_name_of_a_question_covers_all_that_answers_depend_on(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    names = {settings.question("a"), settings.question("b")}
    for change in ({"classes": 4}, {"epsilon": 2.0}, {"unit": "owner"}, {"least": 4}, {"fit": "other:fit"}, {"name": "second"}):
        names.add(dataclasses.replace(settings, **change).question("a"))
    assert len(names) == 8


def test_owners_of_the_demonstration_share_no_record() -> None:
    labels = np.random.default_rng(0).integers(0, 2, 5000)
    home = module("table").owner_of_records(labels, 10, 0.1)
    assert (home == module("table").owner_of_records(labels, 10, 0.1)).all()
    shares = [labels[home == owner].mean() for owner in range(10) if (home == owner).any()]
    assert max(shares) - min(shares) > 0.5


def test_tables_are_read_without_unpickling(tmp_path: Path) -> None:
    table = module("table")
    (tmp_path / "t.csv").write_text("id,age,label,income\n7,0.5,1,2.5\n9,1,0,3\n")
    read = table.read_table(str(tmp_path / "t.csv"))
    assert read.features.tolist() == [[0.5, 2.5], [1.0, 3.0]]
    assert (read.labels.tolist(), read.ids.tolist()) == ([1, 0], [7, 9])
    np.savez(tmp_path / "t.npz", features=read.features, labels=read.labels)
    assert table.read_table(str(tmp_path / "t.npz")).ids is None
    np.save(tmp_path / "p.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ts.ArgumentError, match="points must be"):
        table.read_points(str(tmp_path / "p.npy"))
    points = read.features
    assert table.digest(points) == table.digest(points.copy()) != table.digest(points.T)


def test_release_and_student_are_bound_together_and_a_restart_binds_them_again(tmp_path: Path) -> None:
    answering, settings = module("answering"), settings_of(tmp_path, epsilon=100.0)
    points = np.random.default_rng(0).normal(size=(POINTS, 3)).astype(np.float32)
    votes = np.repeat(points.argmax(axis=1)[:, None], OWNERS, axis=1).astype(np.int16)
    release = answering.answer(settings, votes)
    student = answering.Student.learn(points, release.labels)
    folder = answering.keep(settings, release, student)
    assert folder == answering.keep(settings, answering.recorded(settings, POINTS), student)
    assert set(ts.load_release(folder).certificate.files) == {"labels.csv", "student.npz"}
    again = answering.Student.load(folder / "student.npz")
    assert (again.predict(points) == student.predict(points)).all()
    assert (again.predict(points) == release.labels).mean() > 0.7
    (folder / "student.npz").write_bytes(b"another")
    with pytest.raises(ts.ArgumentError):
        ts.load_release(folder)


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_a_student_of_any_number_of_classes(classes: int) -> None:
    student = module("answering").Student
    points = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    labels = points[:, :classes].argmax(axis=1)
    labels[:5] = ts.ABSTAIN
    assert (student.learn(points, labels).predict(points)[5:] == labels[5:]).mean() > 0.85
    shares = np.eye(classes)[np.maximum(labels, 0)]
    assert (student.learn(points, labels, shares).predict(points)[5:] == labels[5:]).mean() > 0.85


def people(count: int, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(count, 4)).astype(np.float32)
    labels = (features[:, 0] + 0.3 * generator.normal(size=count) > 0).astype(np.int64)
    return module("table").Table(features, labels, np.arange(count) + 1000 * seed)


def shared(folder: Path, **changes: Any) -> Any:
    given = {
        "secure": True,
        "noise": "owners",
        "classes": 2,
        "owners": 6,
        "least": 5,
        "teachers": 8,
        "colluding": 1,
        "ask": POINTS,
    }
    return settings_of(folder, **{**given, **changes})


def test_owners_together_are_one_hand(tmp_path: Path) -> None:
    """Their counts add up to those of all their teachers, and their shares of the noise to enough of it."""
    shares, settings, fit = module("shares"), shared(tmp_path), module("model").fit_linear
    points = np.random.default_rng(0).normal(size=(POINTS, 4)).astype(np.float32)
    tables = [people(200, seed) for seed in range(6)]
    counts = [shares.counts_of(table, fit, points, settings, bytes(31) + bytes([place])) for place, table in enumerate(tables)]
    assert (sum(counts).sum(axis=1) == 6 * 8).all()
    assert (sum(counts).argmax(axis=1) == (points[:, 0] > 0)).mean() > 0.8
    given = [shares.share_of(count, settings, GeneratorNoise(np.random.default_rng(place))) for place, count in enumerate(counts)]
    noise = sum(given) - sum(counts)
    spec = shares.spec_of(settings, POINTS)
    assert float(shares.scale_of(settings, POINTS)) * 4**0.5 >= float(spec.scale)
    assert 0.7 < noise.std() / (float(shares.scale_of(settings, POINTS)) * 6**0.5) < 1.3  # 80 draws, a fixed seed
    server = shared(tmp_path, noise="server", teachers=1)
    assert (shares.share_of(counts[0], server) == counts[0]).all()


def test_a_record_moves_the_votes_of_one_teacher_of_its_owner(tmp_path: Path) -> None:
    shares, settings, fit = module("shares"), shared(tmp_path), module("model").fit_linear
    points = np.random.default_rng(0).normal(size=(POINTS, 4)).astype(np.float32)
    table, key = people(60, 1), bytes(32)
    without = table.rows(np.arange(60) != 17)
    moved = shares.counts_of(table, fit, points, settings, key) - shares.counts_of(without, fit, points, settings, key)
    assert np.abs(moved).max() <= 1
    assert (moved.sum(axis=1) == 0).all()
    with pytest.raises(ts.ArgumentError, match="ids must be"):
        shares.counts_of(table._replace(ids=None), fit, points, settings, key)


def test_teachers_that_fail_abstain(tmp_path: Path) -> None:
    shares, settings = module("shares"), shared(tmp_path)
    points = np.zeros((POINTS, 4), dtype=np.float32)

    def fit(table: Any) -> Any:
        if (table.labels == 1).mean() > 0.5:
            raise ValueError("a private reason")
        return lambda points: np.zeros(len(points), dtype=np.int64)

    counts = shares.counts_of(people(60, 1), fit, points, settings, bytes(32))
    assert (counts[:, 1] == 0).all()
    assert 0 < counts[0, 0] < 8


def test_sums_of_owners_fit_the_modulus_or_are_refused(tmp_path: Path) -> None:
    shares = module("shares")
    settings = shared(tmp_path)
    bound = shares.reach(settings, POINTS)
    assert bound > settings.teachers + 60 * float(shares.scale_of(settings, POINTS))
    assert settings.owners * 2 * bound < 2**32
    with pytest.raises(ts.ArgumentError, match="owners must be so few"):
        shares.reach(shared(tmp_path, owners=2**20, least=5, epsilon=0.001, ask=POINTS), 10_000)


def test_a_key_stays_what_it_was(tmp_path: Path) -> None:
    key_of = module("shares").key_of
    assert key_of(tmp_path) == key_of(tmp_path)
    assert (tmp_path / "shards.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "shards.key").write_bytes(b"cut of")
    with pytest.raises(ts.ArgumentError, match="key must be"):
        key_of(tmp_path)
