"""Every experiment, mechanism and learner on hostile records: nothing that anybody sees depends on them."""

from __future__ import annotations

import pytest

from teacher_student.app import conf_folder

from .loaders import LOADERS
from .mutations import ARRAYS, OTHER_TABLES
from .pairs import CHEAP, World


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (conf_folder() / group).glob("*.yaml"))


SOFT = "privacy.bins=4 student.settings.unanswered=unlabeled"
SMALL_STUDENT = "+student.network.filters=[2] +student.network.hidden=[4]"
SMALL_CNN = f"+learner.filters=[2] +learner.hidden=[4] {SMALL_STUDENT}"
CASES: dict[str, tuple[str, str]] = {
    **{f"mechanism {name}": ("blobs", f"{CHEAP} mechanism={name}") for name in names("mechanism")},
    "mechanism stability_paper": ("blobs", f"{CHEAP} mechanism=stability_paper privacy.epsilon=1000 privacy.cutoff=2"),
    "few votes": ("blobs", f"{CHEAP} mechanism=few_votes mechanism.votes_per_teacher=15"),
    "soft labels": ("halfspaces", f"{CHEAP} {SOFT}"),
    "corrected fractions": ("blobs", f"{CHEAP} mechanism=noisy_fraction boosting.rounds=1"),
    "corrected scores": ("blobs", f"{CHEAP} mechanism=noisy_scores boosting.rounds=1"),
    "scores of trees": ("blobs", f"{CHEAP} mechanism=noisy_scores learner=sklearn learner.num_workers=1"),
    "active queries": ("blobs", f"{CHEAP} queries.order=disagreement queries.rounds=2 queries.total=20"),
    "no reports of others": ("blobs", f"{CHEAP} baselines=false logger=none"),
    "quiet": ("blobs", f"{CHEAP} console=quiet"),
    "learner logistic": ("blobs", f"{CHEAP} learner=logistic"),
    "learner mlp": ("blobs", f"{CHEAP} learner=mlp learner.hidden=[4] student=mlp"),
    "learner adult": ("halfspaces", f"{CHEAP} learner=adult"),
    "learner sklearn": ("blobs", f"{CHEAP} learner=sklearn learner.num_workers=1"),
    "learner boosting": ("blobs", f"{CHEAP} learner=boosting learner.num_workers=1 learner.estimator.n_estimators=2"),
    "learner nearest": ("blobs", f"{CHEAP} learner=nearest queries.order=representative queries.total=20"),
    "few votes of records": ("blobs", f"{CHEAP} learner=nearest mechanism=noisy_fraction queries.total=20"),
    "learner gradients": ("blobs", f"{CHEAP} learner=gradients mechanism=noisy_scores learner.steps=2"),
    "learner cnn": ("mnist", f"{CHEAP} learner=cnn student=cnn {SMALL_CNN}"),
    "learner resnet": (
        "mnist",
        f"{CHEAP} learner=resnet +learner.blocks=[1] +learner.widths=[4] student=cnn {SMALL_STUDENT}",
    ),
    **{f"engine {name}": ("blobs", f"{CHEAP} +teachers.training.engine={name}") for name in ("sequential", "vmap", "batched")},
    "experiment adult": ("adult", "experiment=adult"),
    "experiment adult_boosting": (
        "adult",
        "experiment=adult_boosting learner.estimator.n_estimators=2 learner.num_workers=1 queries.total=20",
    ),
    "experiment adult_fractions": ("adult", "experiment=adult_fractions boosting.rounds=1 queries.total=20"),
    "experiment adult_gradients": ("adult", "experiment=adult_gradients data.view.components=40 learner.steps=2"),
    "experiment adult_label_private": ("adult", "experiment=adult_label_private data.view.number=100"),
    "experiment adult_scores": ("adult", "experiment=adult_scores data.view.components=40 boosting.rounds=1 queries.total=20"),
    "experiment adult_soft": ("adult", "experiment=adult_soft"),
    "experiment blobs": ("blobs", "experiment=blobs"),
    "experiment digits": ("digits", "experiment=digits data.view.components=8"),
    "experiment digits_frozen": (
        "digits on small images",
        "experiment=digits_frozen data.view.components=8 data.view.encoder.steps=2 mechanism.votes_per_teacher=12",
    ),
    "experiment digits_gradients": ("digits", "experiment=digits_gradients data.view.components=8 learner.steps=2"),
    "experiment digits_local": ("digits", "experiment=digits_local data.view.components=8"),
    "experiment digits_local_labels": (
        "digits",
        "experiment=digits_local_labels data.view.view.components=8 data.view.number=25 queries.total=20",
    ),
    "experiment mnist_gradients": (
        "mnist",
        f"experiment=mnist_gradients data.view.components=null data.view.whiten=0 learner.steps=2 {SMALL_STUDENT}",
    ),
    "experiment mnist_local": (
        "mnist",
        f"experiment=mnist_local data.view.components=null learner.votes=1 queries.total=10 {SMALL_STUDENT}",
    ),
    "experiment mnist": ("mnist", f"experiment=mnist {SMALL_CNN}"),
    "experiment mnist5000": ("mnist5000", "experiment=mnist5000 data.view.components=8"),
    "experiment mnist5000_frozen": (
        "mnist5000",
        "experiment=mnist5000_frozen data.view.components=8 data.view.encoder.steps=2 mechanism.votes_per_teacher=12",
    ),
    "experiment table": ("table", "experiment=table"),
    "experiment table_scores": ("table", "experiment=table_scores boosting.rounds=1 queries.total=20"),
}
"""Loader and words of each case."""

KINDS = ("stability", "exponential", "noisy_fraction", "noisy_scores", "few_votes")
"""A mechanism of each kind: those of one kind see the same votes in the same code."""
LABELS_ONLY = {"experiment adult_label_private", "experiment digits_local_labels"}
"""Cases in which features and number of the records are public: only a label may change and nothing show."""

DEFAULT = {
    **{f"mechanism {name}": ("one 3e38",) for name in KINDS},
    "soft labels": ("NaN",),
    "corrected fractions": ("NaN",),
    "corrected scores": ("one 3e38",),
    "scores of trees": ("NaN",),
    "active queries": ("NaN",),
    "learner sklearn": ("infinity",),
    "learner nearest": ("one removed",),
    "learner gradients": ("one 3e38",),
    "engine vmap": ("NaN",),
    "experiment table": ("one removed",),
}
"""What the default suite takes of them, beside all loaders."""


def cases():
    for case, (loader, _) in CASES.items():
        private = ["another class"] if case in LABELS_ONLY else LOADERS[loader].mutations
        for mutation in private:
            marks = () if mutation in DEFAULT.get(case, ()) else (pytest.mark.slow,)
            yield pytest.param(case, mutation, marks=marks, id=f"{case}-{mutation}")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world") / "here")


@pytest.mark.parametrize("group", ["experiment", "mechanism", "learner"])
def test_every_config_has_its_case(group):
    assert [f"{group} {name}" for name in names(group) if f"{group} {name}" not in CASES] == []


@pytest.mark.parametrize(("case", "mutation"), cases())
def test_one_record_changes_nothing_that_anybody_sees(case, mutation, world):
    name, words = CASES[case]
    loader = LOADERS[name]
    usual = world.outcome(loader, None, words)
    assert usual.code == 0, usual.err
    assert usual.differences(world.outcome(loader, loader.mutations[mutation], words)) == []


@pytest.mark.parametrize("pair", OTHER_TABLES)
def test_nor_does_one_record_of_another_table(pair, world):
    one, other = (world.outcome(LOADERS["blobs"], change, CHEAP) for change in OTHER_TABLES[pair])
    assert one.code == 0, one.err
    assert one.differences(other) == []


@pytest.mark.parametrize("mutation", ["one removed", pytest.param("one 3e38", marks=pytest.mark.slow)])
def test_nor_where_nothing_is_answered(mutation, world):
    one, other = (world.outcome(LOADERS["blobs"], change, CHEAP, tied=True) for change in (None, ARRAYS[mutation]))
    assert one.code == 2
    assert "must hold at least one answer" in one.err
    assert one.differences(other) == []


LEDGER = "budget.ledger={inputs}/ledger.sqlite budget.dataset=people"
EARLIER = "budget.dataset=others run_folder={inputs}/earlier"


@pytest.mark.parametrize("mutation", ["one removed", pytest.param("another class", marks=pytest.mark.slow)])
def test_nor_does_a_ledger_that_knows_the_records_by_another_name(mutation, world):
    """The usual table is recognised, its neighbour is not: that is said under `private/` alone."""
    words = f"{CHEAP} {LEDGER}"
    one, other = (world.outcome(LOADERS["blobs"], change, words, earlier=EARLIER) for change in (None, ARRAYS[mutation]))
    assert one.code == 0, one.err
    assert one.differences(other) == []


SAME_FILE = "data.public={inputs}/private.csv"


@pytest.mark.parametrize("mutation", ["age inf", pytest.param("one removed", marks=pytest.mark.slow)])
def test_nor_where_the_private_table_is_given_as_the_public_one(mutation, world):
    loader = LOADERS["table"]
    one, other = (world.outcome(loader, change, f"{CHEAP} {SAME_FILE}") for change in (None, loader.mutations[mutation]))
    assert one.code == 2
    assert one.differences(other) == []
