"""A mechanism is registered with every piece or not at all, and nothing is assumed for a missing piece."""

from __future__ import annotations

import abc
import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.auditing import audit
from teacher_student.auditing.noisy_max import NoisyMaxLaw
from teacher_student.mechanisms import build_mechanism
from teacher_student.planning.report import plan
from teacher_student.privacy import MECHANISMS, GNMax, LabelSpec, PrivateSelection, calibrate, registry
from teacher_student.privacy.noisy_max import NoisyMaxParameters, OneScaleMax
from teacher_student.privacy.paid_answers import PureCost
from teacher_student.privacy.parameters import Draw


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    registry.load()
    for name in ("_SPECS", "_SAMPLERS"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))


PIECES = {
    "mechanism": "stub",
    "vote_noise": "gaussian",
    "pure_parts": property(lambda self: (1 / float(self.scale), self.max_answers)),
    "draws": property(lambda self: (Draw("discrete_laplace", self.scale, "count"),)),
    "law": lambda self, counts: np.full(len(counts), 1 / len(counts)),
}


def made(base=(PureCost, OneScaleMax), frozen=True, **pieces):
    kind = abc.ABCMeta("Stub", base, {name: piece for name, piece in pieces.items() if piece is not ...})
    return dataclasses.dataclass(frozen=True, kw_only=True)(kind) if frozen else kind


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        ({"mechanism": ...}, "mechanism must be a name"),
        ({"vote_noise": ...}, "mechanism stub must have vote_noise"),
        ({"vote_noise": "cauchy"}, "mechanism stub must have vote_noise"),
        ({"vote_noise": None}, "mechanism stub must have win_probability, since vote_noise is None"),
        ({"pure_parts": ...}, "mechanism stub must have pure_parts"),
        ({"draws": ...}, "mechanism stub must have draws"),
        ({"law": ...}, "mechanism stub must have law"),
        ({"soft_labels": True}, "mechanism stub must have calibrate_soft"),
        ({"releases": "gossip"}, "mechanism stub must have releases"),
        ({"mechanism": "gnmax"}, "mechanism must be a new name, got gnmax"),
        ({"base": (GNMax,)}, "mechanism stub must not inherit from GNMax"),
        ({"frozen": False}, "mechanism stub must be a frozen dataclass"),
    ],
)
def test_a_missing_piece_is_one_line_when_the_mechanism_is_registered(change, lacks):
    with pytest.raises(ArgumentError, match=f"^{lacks}") as refused:
        registry.register(made(**{**PIECES, **change}))
    assert "\n" not in str(refused.value)
    assert "stub" not in registry._SPECS


@pytest.mark.parametrize("thing", [3, None, int, "gnmax"])
def test_only_a_spec_is_registered(thing):
    with pytest.raises(ArgumentError, match=r"^mechanism must be a subclass of MechanismSpec"):
        registry.register(thing)


def test_a_mechanism_without_a_sampler_is_refused_and_affects_no_other():
    registry.register(made(**PIECES))
    for use in (
        lambda: calibrate("stub", epsilon=1.0, delta=1e-5, num_queries=3),
        lambda: audit("stub"),
        lambda: build_mechanism(registry._SPECS["stub"](scale=Fraction(2), max_answers=3)),
    ):
        with pytest.raises(ArgumentError, match=r"sampler|parameters must be"):
            use()
    found = plan(num_teachers=300, num_queries=20, epsilon=1.0, delta=1e-5, mechanisms=["gnmax", "stub"])
    assert [row.mechanism for row in found.table] == ["gnmax"]
    assert "must have a sampler" in found.infeasible["stub"]


def test_a_sampler_of_another_mechanism_is_not_inherited_once_a_class_is_registered():
    assert build_mechanism(made((GNMax,), mechanism="gnmax")(scale=Fraction(2), max_answers=3))  # a twin in a test
    registry._SPECS["stub"] = made((GNMax,), mechanism="stub")  # past `register`, which refuses it
    with pytest.raises(ArgumentError, match="parameters must be those of a mechanism"):
        build_mechanism(registry._SPECS["stub"](scale=Fraction(2), max_answers=3))


@pytest.mark.parametrize("name", list(registry.ANSWERING))
def test_every_mechanism_has_every_piece(name):
    kind = registry.ANSWERING[name]
    spec = calibrate(name, epsilon=1.0, delta=1e-5, **{"cutoff": 3, **kind.audit_options(3, None)})
    assert spec.limit.most == 3
    assert spec.limit.unit + "s" == spec.pays_for
    assert {draw.scale for draw in spec.draws} == {
        getattr(spec, field.name) for field in dataclasses.fields(spec) if field.name.endswith("scale")
    }
    assert len(spec.mutants()) >= 4
    assert all(mutant != spec and type(mutant) is kind for mutant in spec.mutants().values())
    if isinstance(spec, LabelSpec):
        first = spec.first_answer(np.array([[300.0, 20.0, 10.0], [60.0, 58.0, 57.0]]))
        assert ((first >= 0) & (first <= 1)).all()
        assert (first.sum(axis=1) <= 1 + 1e-9).all()
        expected = spec.expected_labels(np.array([[300.0, 20.0, 10.0]]), np.ones(1), 3)
        assert expected.labels.sum() == pytest.approx(expected.answers, abs=0.1)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if issubclass(registry.LABELS[name], NoisyMaxParameters)])
@pytest.mark.parametrize("votes", [[20, 15, 0], [7, 7, 7, 7], [0, 3]])
def test_the_law_of_a_noisy_maximum_is_that_of_the_audit_and_planners_are_near_it(name, votes):
    """The two are implemented separately; a mutant with 0.7 of the scale is told from the law."""
    kind, counts = registry.LABELS[name], np.array(votes)
    spec = calibrate(name, epsilon=1.0, delta=1e-5, **kind.audit_options(3, None))
    assert spec.law(counts) == pytest.approx(NoisyMaxLaw.of(spec)._label_chances(counts), abs=1e-9)
    assert spec.wins(counts[np.newaxis].astype(float))[0] == pytest.approx(spec.law(counts), abs=0.06)
    if len(set(votes)) > 1:
        assert spec.mutants()["scale_0.7"].law(counts) != pytest.approx(spec.law(counts), abs=1e-3)


def test_a_selection_describes_its_sessions():
    session = calibrate("gnmax", epsilon=0.3, delta=1e-6, num_queries=10)
    selection = PrivateSelection(session=session, repetitions=3)
    assert (selection.limit, selection.draws) == (session.limit, session.draws)
    assert set(selection.mutants()) == set(session.mutants())
    assert "private_selection" not in registry.ANSWERING
