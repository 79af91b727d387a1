"""Rounds of queries through one session: points are chosen from what was released alone, and a killed run asks no others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from teacher_student import HALTED, ArgumentError
from teacher_student.app import compose, settings_from_config
from teacher_student.pipeline import RunSettings, modes, run, stages, verify_folder
from teacher_student.pipeline.folder import RunFolder
from teacher_student.student import ORDERS

pytestmark = pytest.mark.usefixtures("no_pictures")


def settings(*overrides: str) -> RunSettings:
    base = ["experiment=blobs", "data.num_private=3000", "data.num_public=200", "student.settings.epochs=3", "baselines=false"]
    return settings_from_config(compose("run", [*base, "logger=none", *overrides]))


def asked(session) -> list[int]:
    return [int(name) for name in session.release().queries]


def agreed(num_points: int, num_classes: int = 3) -> np.ndarray:
    """Votes so clear that every mechanism answers them with the plurality."""
    counts = np.zeros((num_points, num_classes), dtype=np.int64)
    counts[np.arange(num_points), np.arange(num_points) % num_classes] = 250
    return counts


def rounds_of(chosen: RunSettings, votes: np.ndarray, state=None) -> list[int]:
    dataset = chosen.data()
    mode = modes.HardLabels(chosen, dataset.public_sizes)
    with mode.open_session(state) as session:
        mode.ask(stages.Run(chosen, dataset, RunFolder(Path())), session, votes, 0, lambda *_: None)
        return asked(session)


def test_the_default_asks_all_points_in_their_order():
    assert rounds_of(settings(), agreed(200)) == list(range(200))


CERTAIN = "privacy.epsilon=20"
"""So little noise that a unanimous vote goes unanswered once in 1e20 queries: two sessions give the same labels."""


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_asks_each_of_the_wanted_points_once(order):
    points = rounds_of(settings(f"queries.order={order}", "queries.rounds=3", "queries.total=50"), agreed(200))
    assert len(points) == len(set(points)) == 50


@pytest.mark.parametrize("order", ["uncertain", "disagreement", "class_balanced"])
def test_points_depend_on_released_labels_and_on_no_vote_that_was_not_asked(order):
    """Other votes on points that were not asked change nothing; other released labels change the later rounds."""
    chosen = settings(f"queries.order={order}", "queries.rounds=3", "queries.total=60", CERTAIN)
    votes = agreed(200)
    first = rounds_of(chosen, votes)
    others = np.setdiff1d(np.arange(200), first)
    elsewhere = votes.copy()
    elsewhere[others] = votes[others][:, [1, 2, 0]]
    assert rounds_of(chosen, elsewhere) == first
    changed = votes.copy()
    changed[first[:20]] = np.where(np.arange(3) == 1, 250, 0)
    assert rounds_of(chosen, changed)[:20] == first[:20]
    assert rounds_of(chosen, changed) != first


def test_a_run_killed_in_the_middle_of_the_second_round_asks_the_same_points(tmp_path, monkeypatch):
    monkeypatch.setattr(modes, "QUERIES_PER_ANSWER", 8)
    chosen, votes = settings("queries.order=uncertain", "queries.rounds=3", "queries.total=60", CERTAIN), agreed(200)
    whole = rounds_of(chosen, votes)
    original, calls = modes.LabelSession.answer, []

    def answer(self, *arguments, **keywords):
        if len(calls) == 4:  # three parts of the first round and one of the second
            raise KeyboardInterrupt
        calls.append(original(self, *arguments, **keywords))
        return calls[-1]

    monkeypatch.setattr(modes.LabelSession, "answer", answer)
    with pytest.raises(KeyboardInterrupt):
        rounds_of(chosen, votes, tmp_path / "session.sqlite")
    monkeypatch.setattr(modes.LabelSession, "answer", original)
    assert rounds_of(chosen, votes, tmp_path / "session.sqlite") == whole
    assert rounds_of(chosen, votes, tmp_path / "session.sqlite") == whole


def test_students_between_rounds_learn_in_one_process(monkeypatch):
    """Other ranks are not there any more when labels are asked for."""
    seen, fit = [], stages.fit_student

    def spy(*arguments, trainer_options, **keywords):
        seen.append(trainer_options)
        return fit(*arguments, trainer_options=trainer_options, **keywords)

    monkeypatch.setattr(stages, "fit_student", spy)
    chosen = settings("queries.order=uncertain", "queries.rounds=2", "queries.total=20")
    rounds_of(dataclasses.replace(chosen, trainer={**chosen.trainer, "strategy": "ddp", "devices": 2}), agreed(200))
    assert seen[0]["devices"] == 1
    assert "strategy" not in seen[0]


def test_no_further_round_after_the_halt(tmp_path):
    """Nobody agrees, so the cutoff is spent within the first round; the others are not asked, not even after a restart."""
    chosen = settings("queries.order=uncertain", "queries.rounds=4", "privacy.cutoff=5")
    for _ in range(2):
        assert len(rounds_of(chosen, np.full((200, 3), 80), tmp_path / "session.sqlite")) == 50


def test_a_whole_run_in_rounds(tmp_path, monkeypatch):
    seen, teach = {}, modes.HardLabels.targets

    def spy(mode, release):
        seen["targets"] = teach(mode, release)
        return seen["targets"]

    monkeypatch.setattr(modes.HardLabels, "targets", spy)
    result = run(
        settings("queries.order=half_random", "queries.rounds=2", "queries.total=80", "student.settings.epochs=20"),
        tmp_path / "run",
    )
    assert "recomputed epsilon" in verify_folder(result.folder.path)
    positions = np.array([int(name) for name in result.release.queries])
    targets, labels = seen["targets"], np.full(200, HALTED)
    labels[positions] = result.release.labels
    assert len(targets.weights) == 200
    assert (targets.weights[labels == HALTED] == 0).all()
    assert np.array_equal(targets.probabilities[labels >= 0].argmax(1), labels[labels >= 0])
    assert targets.unlabeled[np.setdiff1d(np.arange(200), positions)].all()
    assert result.metrics["accuracy"] > 0.8


def test_fewer_queries_need_less_noise_where_every_answer_is_paid_for():
    few, all_of_them = (
        modes.HardLabels(chosen, chosen.data().public_sizes).open_session().mechanism.parameters
        for chosen in (settings("mechanism=gnmax", "queries.total=20"), settings("mechanism=gnmax"))
    )
    assert (few.max_answers, all_of_them.max_answers) == (20, 200)
    assert few.scale < all_of_them.scale


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["queries.total=201"], "queries.total must be at most the number of public points, 200, got 201"),
        (["queries.order=random", "privacy.bins=10", "data.num_classes=2"], "queries must be left as they are"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_written(overrides, says, tmp_path):
    with pytest.raises(ArgumentError, match=says):
        run(settings(*overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_pool_smaller_than_the_students_batch_is_enough_and_a_class_that_no_record_has(tmp_path):
    """Whether any record is of a class is private, so a class that teachers never saw only costs accuracy."""
    chosen = settings("data.num_public=20", "student.settings.epochs=60")
    dataset = chosen.data()
    dataset = dataclasses.replace(dataset, private_labels=np.where(dataset.private_labels == 2, 1, dataset.private_labels))
    result = run(dataclasses.replace(chosen, data=lambda: dataset), tmp_path / "run")
    assert chosen.student.batch_size > 20
    assert 2 not in result.release.labels
    assert result.judgement.confusion[2].sum() > 0


@pytest.mark.slow  # `test_runner` has a run without an answer in the default suite
def test_nothing_answered_loses_nothing_and_says_what_to_change(tmp_path):
    chosen, says = settings("privacy.epsilon=0.1", "teachers.number=40"), []
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"got none of 200; epsilon 0\.1 is spent, and .*report") as found:
            run(chosen, tmp_path / "run")
        says.append(str(found.value))
        assert "recomputed epsilon" in verify_folder(tmp_path / "run")
    assert says[0] == says[1]
    assert "\n" not in says[0]
    assert "What would help a run on other records: 2,300 teachers would get" in says[0]
