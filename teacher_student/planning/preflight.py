"""Warnings before anything is trained or spent: a weak guarantee, labels that are mostly noise, hardly any labels at all.

`alerts` says the same of a finished release, and whether its student is worth publishing.

Only public and released numbers go in, so a warning reveals nothing about the data. Expected answers assume favourable votes: on
99 of 100 queries the winner leads by nine tenths of the teachers. If even those get hardly any labels, real votes will get fewer.
"""

from __future__ import annotations

import dataclasses
import warnings

from teacher_student.arguments import ArgumentError, PrivacyWarning, positive_integer
from teacher_student.planning.report import plan
from teacher_student.planning.request import Request, choose_parameters
from teacher_student.privacy.certificate import Certificate
from teacher_student.privacy.noisy_max import NoisyMaxParameters
from teacher_student.privacy.parameters import REPLACED, LabelSpec, MechanismSpec

UNSTABLE = 0.01
"""Share of queries on which the teachers are assumed to be split."""

LARGEST_EPSILON = 10.0
"""Largest epsilon without a warning: an observer's odds may change by a factor of e^10 = 22,026."""

LOUDEST = 0.5
"""Length of the noise on the mean of all gradients without a warning; 1 is the largest length of the mean itself."""

_LEAST_SHARE, _LEAST_PER_CLASS, _MOST_TEACHERS = 0.01, 5, 10**8


def weak_guarantee(epsilon: float, delta: float, population: int | None = None) -> list[str]:
    """Return one-line warnings about an epsilon or a delta that protects next to nobody.

    Args:
        epsilon: to be guaranteed.
        delta: to be guaranteed.
        population: public order of magnitude of the number of records, if there is one. Never the private number itself.

    Raises:
        ArgumentError: a population that is not a positive integer.

    >>> weak_guarantee(1.0, 1e-5, population=10_000)
    []
    """
    found = []
    if epsilon > LARGEST_EPSILON:
        found.append(
            f"epsilon {epsilon:g} is above {LARGEST_EPSILON:g}: one record may change the odds of an outcome by a factor of "
            f"e^{epsilon:g}, which protects next to nobody. Take a smaller epsilon; 1 is usual."
        )
    if population is not None and delta > 1 / positive_integer("population", population):
        found.append(
            f"delta {delta:g} is above 1 / population = {1 / population:g}: publishing some records outright would satisfy it. "
            f"Take a delta far below {1 / population:g}."
        )
    return found


def few_records(num_teachers: int, population: int | None) -> list[str]:
    """Return a one-line warning if there are more teachers than records, by the public order of magnitude of their number.

    >>> few_records(200, 5000)
    []
    """
    if population is None or num_teachers <= population:
        return []
    return [
        f"teachers.number is {num_teachers:,} and privacy.population {population:,}: most teachers will have no record, and "
        f"abstain. What would help: teachers.number={population} or fewer."
    ]


def mostly_noise(parameters: MechanismSpec, request: Request) -> list[str]:
    """Return a one-line warning if a label of a noisy maximum is more likely to be noise than the teachers' plurality.

    A label that is the plurality with probability q is modelled as the plurality with probability (q - 1/C) / (1 - 1/C), and
    otherwise as drawn uniformly from the C classes. If that probability is below one half, the label is mostly noise.
    """
    if not isinstance(parameters, NoisyMaxParameters):
        return []
    expected, chance = request.expected(parameters, UNSTABLE), 1 / request.num_classes
    if expected.answers <= 0:
        return []
    right = expected.agreeing / expected.answers
    if right - chance >= (1 - chance) / 2:
        return []
    fewer = _fewer_queries(parameters, request)
    return [
        f"expect only {right:.0%} of the labels by {parameters.mechanism} to be what most teachers say, even if 19 in 20 "
        f"teachers agree ({chance:.0%} would be by chance). What would help: {fewer}more teachers or a larger epsilon."
    ]


def _fewer_queries(parameters: NoisyMaxParameters, request: Request) -> str:
    """Return a phrase with the number of queries that can get right labels, empty if none can."""
    try:
        best = choose_parameters(parameters.mechanism, request)
    except ArgumentError:
        return ""
    assert isinstance(best, NoisyMaxParameters)
    if request.correct(best, request.clear_gap) < 1 - request.failure or best.max_asked >= request.num_queries:
        return ""
    return f"at most {best.max_asked:,} queries instead of {request.num_queries:,}, "


def warn(texts: list[str]) -> None:
    """Issue each text as a `PrivacyWarning` that points to the line that called the caller."""
    for text in texts:
        warnings.warn(text, PrivacyWarning, stacklevel=3)


def few_answers(parameters: MechanismSpec, request: Request) -> list[str]:
    """Return a one-line warning if hardly any label is to be expected.

    Hardly any means less than 1 % of the queries or five for each class, but never more than half of the queries. Mechanisms that
    do not release labels are not checked.
    """
    if not isinstance(parameters, LabelSpec):
        return []
    expected = request.expected(parameters, UNSTABLE)
    if expected.agreeing >= _enough(request.num_queries, request.num_classes):
        return []
    wrong = expected.answers - expected.agreeing
    caveat = f" (and about {wrong:,.0f} others)" if wrong >= 1 else ""
    return [
        f"expect only about {expected.agreeing:,.0f} labels that most teachers agree on{caveat}, of {request.num_queries:,} "
        f"asked, even if 19 in 20 teachers agree. What would help: {suggestion(parameters, request)}"
    ]


def _enough(num_queries: int, num_classes: int) -> float:
    return min(max(_LEAST_SHARE * num_queries, _LEAST_PER_CLASS * num_classes), num_queries / 2)


def alerts(
    certificate: Certificate,
    answered: int,
    asked: int,
    *,
    population: int | None = None,
    accuracy: float | None = None,
    majority: float | None = None,
    classes_found: int | None = None,
) -> list[str]:
    """Return what speaks against a finished release, in whole sentences; empty if nothing does.

    Args:
        certificate: of the release.
        answered: released answers.
        asked: queries asked.
        population: public order of magnitude of the number of records, if there is one.
        accuracy: of the student on a public evaluation set, if there is one.
        majority: share of that set's largest class.
        classes_found: number of different classes among released labels; None for other answers.

    Raises:
        ArgumentError: a population that is not a positive integer.
    """
    found = weak_guarantee(certificate.epsilon, certificate.delta, population)
    parameters, teachers = certificate.parameters.one_session, certificate.used.get("num_teachers")
    classes = max(2, certificate.used.get("num_classes") or 0)
    if asked and isinstance(parameters, LabelSpec) and isinstance(teachers, int):
        request = Request(
            num_teachers=max(1, teachers),
            num_queries=asked,
            num_classes=classes,
            epsilon=certificate.epsilon,
            delta=certificate.delta,
            vote_change=getattr(parameters, "vote_change", REPLACED),
        )
        found += mostly_noise(parameters, request)
    if answered < _enough(asked, classes):
        found.append(
            f"only {answered:,} of {asked:,} queries have an answer, which is hardly enough for a student. What would help "
            "another run: more teachers, a larger epsilon, or another mechanism (teacher-student plan)."
        )
    elif classes_found == 1:
        found.append("all released labels are of one class, so a student can only learn to say that class.")
    if accuracy is not None and majority is not None and accuracy <= majority:
        found.append(
            f"the student's accuracy is {accuracy:.4f}, and {majority:.4f} without any learning, for whoever always says the "
            "largest class. This student has learned nothing of use. What would help: more records, a larger epsilon, or another "
            "mechanism."
        )
    return found


def hidden_gradients(noise: float) -> list[str]:
    """Return a one-line warning if noise hides the gradients of a linear model.

    Args:
        noise: length of the noise on the mean of all gradients of a session; 1 is the largest length of a gradient.

    >>> hidden_gradients(0.1)
    []
    """
    if noise <= LOUDEST:
        return []
    return [
        f"the noise on all gradients together is {noise:.2g} times as long as their mean can be, so the student will be mostly "
        "noise. What would help: a larger epsilon, fewer features (data.view.components), or more records, if teachers.number "
        "understates their order of magnitude."
    ]


def suggestion(parameters: MechanismSpec, request: Request) -> str:
    """Return what would give more answers: another mechanism, more teachers, a larger epsilon."""
    ways = []
    if isinstance(parameters, LabelSpec):
        ways = [way for way in (_other_mechanism(parameters, request), _more_teachers(parameters, request)) if way]
    return "; ".join([*ways, "a larger epsilon"]) + "."


def _other_mechanism(parameters: LabelSpec, request: Request) -> str:
    sizes = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    best = plan(**{**sizes, "shares": [UNSTABLE]}).best(UNSTABLE)
    if best is None or best.expected_agreeing[UNSTABLE] < 2 * request.expected(parameters, UNSTABLE).agreeing + 1:
        return ""
    return f"mechanism={best.mechanism} privacy.cutoff=null would get about {best.expected_agreeing[UNSTABLE]:,.0f}"


def _more_teachers(parameters: LabelSpec, request: Request) -> str:
    """Suggest the number of teachers at which these parameters give half of the labels that any number would."""

    def agreeing(teachers: int) -> float:
        return dataclasses.replace(request, num_teachers=teachers).expected(parameters, UNSTABLE).agreeing

    half = agreeing(_MOST_TEACHERS) / 2
    if half <= 2 * agreeing(request.num_teachers) + 1:
        return ""
    low, high = request.num_teachers, _MOST_TEACHERS
    while high > max(low + 1, 1.02 * low):
        middle = round((low * high) ** 0.5)
        low, high = (low, middle) if agreeing(middle) >= half else (middle, high)
    return f"{float(f'{high:.2g}'):,.0f} teachers would get about {agreeing(high):,.0f} with {parameters.mechanism}"
