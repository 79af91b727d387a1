"""Doors of the rooms that take numbers only: privacy, theory, auditing."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from research import theory
from teacher_student import auditing, privacy
from teacher_student.planning import Request, choose, plan, plan_records
from teacher_student.privacy import Certificate

from .strategies import DELTA, EPSILON, ODD, SHARE, Door, integers

MECHANISM = st.sampled_from(privacy.MECHANISMS)
STABILITY = st.sampled_from(["stability", "stability_paper", "stability_redraw", "stability_laplace"])
SCALE = st.sampled_from([Fraction(5), Fraction(733, 100), Fraction(1, 3)])
SIZES = {"num_queries": integers(1, 2000), "cutoff": integers(1, 60)}
BUDGET = {"epsilon": EPSILON, "delta": DELTA}
PARAMETERS = privacy.calibrate("stability", epsilon=1.0, delta=1e-5, cutoff=5)
NOISY = privacy.calibrate("gnmax", epsilon=1.0, delta=1e-5, num_queries=5)
GIVEN = st.sampled_from([PARAMETERS, NOISY])
THRESHOLD = {"threshold_scale": SCALE, "query_scale": SCALE, "threshold": integers(0, 50), "cutoff": integers()}


def calibrated(function):
    """With an option that only some mechanisms have."""

    def call(option, value, **given):
        return function(**given, **({} if option is None else {option: value}))

    options = st.sampled_from([None, "threshold_ratio", "num_teachers", "max_answers", "release_share", "speed"])
    return call, {"option": options, "value": st.sampled_from([1.8, 2, 100])}


def certify(parameters, **given):
    certificate = Certificate(mechanism=getattr(parameters, "mechanism", "stability"), parameters=parameters, **given)
    text = certificate.to_json()
    certificate.verify()
    return Certificate.from_json(text).total(certificate.delta)


JSON = Certificate(
    epsilon=1.0, delta=1e-5, mechanism="stability", parameters=PARAMETERS, private=True, neighbours="add_remove"
).to_json()


@st.composite
def damaged(draw, text=JSON):
    """A certificate with some of its text cut, doubled or exchanged."""
    start, length = draw(st.integers(0, len(text))), draw(st.integers(0, 30))
    new = draw(st.sampled_from(["", "null", "NaN", "1e999", "{}", "[]", '"', "-1", "true", "\ud800", "9" * 400]))
    return text[:start] + new + text[start + length :]


def read_certificate(text):
    return Certificate.from_json(text).verify()


@st.composite
def mappings(draw):
    """The parameters' own mapping, some fields exchanged."""
    given = dict(draw(GIVEN).to_dict())
    for name in draw(st.lists(st.sampled_from(sorted(given)), max_size=2)):
        given[name] = draw(ODD)
    return given


def filtering(name, epsilon, delta, claims):
    chosen = privacy.make_filter(name, epsilon, delta)
    return chosen.admits(claims), chosen.spent(claims)


CLAIMS = st.lists(st.builds(privacy.Claim, st.just(PARAMETERS), EPSILON, DELTA), max_size=3)
_calibrate, _options = calibrated(privacy.calibrate)
_calibrate_selection, _ = calibrated(privacy.calibrate_selection)
_calibrate_soft, _ = calibrated(privacy.calibrate_soft)

PRIVACY = {
    "calibrate": Door(_calibrate, {"mechanism": MECHANISM, **BUDGET, **SIZES, **_options}, kept=("option",)),
    "calibrate_soft": Door(_calibrate_soft, {"mechanism": STABILITY, **BUDGET, **SIZES, **_options}, kept=("option",)),
    "parameters_from_dict": Door(privacy.parameters_from_dict, {"mapping": mappings()}),
    "make_filter": Door(
        filtering, {"name": st.sampled_from(["basic", "renyi", "gaussian"]), **BUDGET, "claims": CLAIMS}, kept=("claims",)
    ),
    "Composition": Door(
        lambda parts, delta: privacy.Composition(parts).epsilon(delta),
        {"parts": st.lists(st.tuples(GIVEN, integers()), max_size=2).map(tuple), "delta": DELTA},
        weight=0.2,
    ),
    "Certificate": Door(
        certify,
        {
            "parameters": GIVEN,
            **BUDGET,
            "used": st.just({"num_queries": 2}),
            "neighbours": st.sampled_from(privacy.NEIGHBOURS),
            "private": st.booleans(),
            "composition": st.just(()),
            "not_covered": st.just(("what was tuned",)),
            "versions": st.just({"numpy": "2"}),
        },
    ),
    "Certificate.from_json": Door(read_certificate, {"text": damaged()}),
    "Stability": Door(privacy.Stability, THRESHOLD),
    "StabilityLaplace": Door(privacy.StabilityLaplace, THRESHOLD),
    "StabilityRedraw": Door(privacy.StabilityRedraw, THRESHOLD),
    "StabilityPaper": Door(privacy.StabilityPaper, {**THRESHOLD, "num_queries": integers()}),
    "GNMax": Door(privacy.GNMax, {"max_answers": integers(), "scale": SCALE}),
    "LNMax": Door(privacy.LNMax, {"max_answers": integers(), "scale": SCALE}),
    "Exponential": Door(privacy.Exponential, {"max_answers": integers(), "scale": SCALE}),
    "NoisyFraction": Door(privacy.NoisyFraction, {"max_answers": integers(), "num_classes": integers(2), "scale": SCALE}),
    "NoisyScores": Door(
        privacy.NoisyScores,
        {"max_answers": integers(), "num_classes": integers(2), "steps": integers(), "scale": SCALE},
    ),
    "ConfidentGNMax": Door(
        privacy.ConfidentGNMax,
        {
            "max_answers": integers(),
            "threshold": integers(0, 50),
            "threshold_scale": SCALE,
            "query_scale": SCALE,
            "num_queries": integers(5, 20),
        },
    ),
    "PrivateSelection": Door(
        lambda **given: privacy.PrivateSelection(**given).epsilon(1e-5), {"session": GIVEN, "repetitions": integers(2)}
    ),
    "calibrate_selection": Door(
        _calibrate_selection,
        {"mechanism": MECHANISM, **BUDGET, **SIZES, "repetitions": integers(2, 9), **_options},
        weight=0.2,
        kept=("option",),
    ),
    "teachers_needed": Door(
        privacy.teachers_needed,
        {"parameters": st.just(PARAMETERS), "num_queries": integers(), "failure": SHARE},
        kept=("parameters",),
    ),
    "teachers_printed": Door(privacy.teachers_printed, {**BUDGET, **SIZES, "failure": SHARE}),
    "teachers_tight": Door(privacy.teachers_tight, {**BUDGET, **SIZES, "failure": SHARE}, weight=0.1),
}

PLANNING = {
    "choose": Door(
        lambda **given: str(choose(**given)),
        {
            "standins": st.sampled_from([[[[95, 5], [40, 60]]], [np.array([[900, 0], [450, 450]]), [[3, 97]]]]),
            "num_queries": integers(1, 50),
            **BUDGET,
            "truth": st.none(),
            "wrong": SHARE,
            "mechanisms": st.sampled_from([["gnmax"], ["stability", "confident_gnmax"]]),
        },
        weight=0.1,
    ),
    "plan": Door(
        lambda **given: str(plan(**given)),
        {
            "num_teachers": integers(1, 3000),
            "num_queries": integers(1, 3000),
            **BUDGET,
            "failure": SHARE,
            "num_classes": integers(2),
            "clear_share": SHARE,
            "cutoffs": st.sampled_from([None, [5]]),
            "mechanisms": st.sampled_from([["stability"], ["gnmax"], ["exponential", "stability_paper"]]),
            "shares": st.just((0.1,)),
        },
        weight=0.1,
    ),
    "plan_records": Door(
        lambda **given: str(plan_records(**given)),
        {
            "records": integers(1, 100_000),
            "num_points": integers(1, 3000),
            "num_classes": integers(2, 50),
            **BUDGET,
            "queries": st.just(1),
            "votes": st.none(),
            "agreement": SHARE,
            "neighbours": st.sampled_from(["add_remove", "label_only"]),
            "wrong": SHARE,
            "mechanisms": st.sampled_from([["noisy_fraction"], ["gnmax"]]),
        },
        weight=0.1,
    ),
    "Request": Door(
        lambda **given: Request(**given).clear_gap,
        {
            "num_teachers": integers(1, 3000),
            "num_queries": integers(1, 3000),
            **BUDGET,
            "failure": SHARE,
            "num_classes": integers(2),
            "clear_share": SHARE,
            "shares": st.just((0.1,)),
            "vote_change": st.sampled_from(["replaced", "withdrawn"]),
        },
    ),
}

EXAMPLES, BETA, VC = integers(1, 5000), st.sampled_from([0.01, 0.05, 0.5]), integers(1, 20)
UTILITY = {**BUDGET, **SIZES, "failure": BETA}
GAMMA = {"stability": BETA, "num_examples": EXAMPLES, "quality": BETA, "sharp": st.booleans()}
CLASSIFY = {"realizable": st.booleans(), "best_error": SHARE, "calibration": st.sampled_from(["tight", "printed", "paper"])}
THEORY = {
    "agnostic_error": {"num_examples": EXAMPLES, "vc_dimension": VC, "failure": BETA},
    "agnostic_sample_size": {"alpha": BETA, "failure": BETA, "vc_dimension": VC},
    "bin_width": GAMMA,
    "concentration_radius": {name: GAMMA[name] for name in ("stability", "num_examples", "sharp")},
    "disputed_queries": {"num_classifiers": VC, "mistakes": EPSILON, "share": BETA},
    "distance_answered": {"parameters": st.just(PARAMETERS), "num_queries": VC, "failure": BETA},
    "loglog_slope": {"sizes": st.just([1.0, 2.0, 4.0]), "values": st.just([1.0, 3.0, 2.0])},
    "misclassification_rate": {
        "vc_dimension": VC, "num_examples": EXAMPLES, "num_queries": EXAMPLES, "beta": BETA, **BUDGET, **CLASSIFY
    },
    "num_bins": {"width": BETA},
    "num_teachers": UTILITY,
    "one_pass_stability": {"step_sizes": st.just(np.full(4, 0.1)), "lipschitz": EPSILON, "strong_convexity": SHARE},
    "online_release_distance": UTILITY,
    "private_labels_error": {"alpha": BETA, "best_error": SHARE},
    "realizable_error": {"num_examples": EXAMPLES, "vc_dimension": VC, "failure": BETA},
    "realizable_sample_size": {"alpha": BETA, "failure": BETA, "vc_dimension": VC},
    "sample_sizes": {"vc_dimension": VC, "alpha": BETA, "beta": BETA, **BUDGET, **CLASSIFY},
    "score_error": GAMMA,
    "share_beyond": {"scores": st.just(np.full((4, 3), 0.5)), "quality": BETA, "confidence": BETA},
    "soft_num_teachers": UTILITY,
    "soft_threshold": {name: UTILITY[name] for name in ("epsilon", "delta", "num_queries", "cutoff")},
    "sparse_vector_margin": UTILITY,
    "stability_test_distance": {**BUDGET, "failure": BETA},
    "stable_histogram_gap": UTILITY,
    "strong_quality_teachers": {"scale": EPSILON, "threshold": EPSILON, "failure": BETA},
    "strongly_convex_constant_step": {
        "num_examples": EXAMPLES, "step_size": BETA, "lipschitz": EPSILON, "strong_convexity": EPSILON
    },
    "student_error": {"alpha": BETA, "best_error": SHARE},
    "teachers_for_concentration": {"failure": BETA},
    "threshold_error": {"num_examples": EXAMPLES, "failure": BETA},
    "uniform_deviation": {"num_examples": EXAMPLES, "vc_dimension": VC, "failure": BETA},
    "unstable_query_cutoff": {"num_queries": EXAMPLES, "error": BETA, "failure": BETA, "num_teachers": VC},
}  # fmt: skip
THEORY = {name: Door(getattr(theory, name), sound, weight=0.3) for name, sound in THEORY.items()}

COUNTS = st.sampled_from([np.array([[3, 0], [1, 2]]), np.array([[1, 2], [0, 0]])])
AUDITING = {
    "NeighbourVotes": Door(auditing.NeighbourVotes, {"name": st.just("pair"), "counts": COUNTS, "other_counts": COUNTS}),
    "ThresholdLaw": Door(
        auditing.ThresholdLaw,
        {
            "threshold_noise": st.sampled_from(["discrete_gaussian", "discrete_laplace"]),
            "query_noise": st.sampled_from(["two_geometrics", "discrete_laplace"]),
            "threshold_scale": EPSILON,
            "query_scale": EPSILON,
            "threshold": integers(),
            "cutoff": integers(),
        },
    ),
    "audit": Door(
        auditing.audit,
        {
            "mechanism": MECHANISM,
            **BUDGET,
            "cutoff": integers(1, 2),
            "num_queries": st.sampled_from([None, 3]),
            "trials": integers(100, 110),
            "false_alarm": BETA,
            "mutants": st.just(False),
            "seed": st.just(1),
        },
        weight=0.02,
    ),
}
