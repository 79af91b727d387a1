"""Private labels for a class of VC dimension V, and the learner trained on them: the paper's PAC section, explicit.

Statements by label: Lemma count, Corollary privPAC, Claim ppac, Theorems class-quer-pac and class-quer-agpac, Theorems ppac
and agppac. What differs from the print:

- *Lemma count* needs "at most" (it fails for B = 0), and counts integers.
- *Corollary privPAC* writes ln(m/beta) where its proof has ln(k/beta), which needs k < m: here the larger of the two. Its
  failures add up to 5/2 beta (teachers beta, queries beta, noise beta/2), not 2 beta.
- *Claim ppac*: 7 alpha + 3 gamma is valid; Markov's inequality on the share of erring teachers gives 3 (alpha + gamma) at once.
- *Theorems ppac, agppac* treat the private labels as an i.i.d. sample, but the private classifier is stateful. For a student
  that minimises the empirical error no independence is needed: at most T labels are wrong, whatever they are; that moves
  every empirical error by at most T/m, hence err <= gamma + 2 T/m + alpha = 7 gamma + 13 alpha (printed 7 gamma + 15 alpha).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from scipy import stats

from research.theory.bound import Bound
from research.theory.pac import agnostic_error, agnostic_sample_size, realizable_error, realizable_sample_size
from research.theory.release_utility import distance_answered, num_teachers, teachers_for_distance
from teacher_student.arguments import (
    ArgumentError,
    choice,
    fraction_of_one,
    number_at_least_zero,
    positive_integer,
    positive_number,
    probability,
    true_or_false,
)

CALIBRATIONS = ("tight", "paper")

_BISECTIONS = 6
_LARGEST_COUNT = 1e15
"""Doubles do not hold every integer far above this; Hoeffding's bound then replaces the binomial quantile."""


def disputed_queries(num_classifiers: int, mistakes: float, share: float) -> Bound:
    """Most queries on which more than `share` of the classifiers can err, if each errs at most `mistakes` times: Lemma count.

    More than share * k erring classifiers are at least floor(share * k) + 1, and there are k * mistakes errors in all.

    >>> disputed_queries(6, 2, 1 / 3).value
    4
    """
    classifiers = positive_integer("num_classifiers", num_classifiers)
    mistakes, share = number_at_least_zero("mistakes", mistakes), positive_number("share", share)
    if share > 0.5:
        raise ArgumentError(f"mistakes must be at least 0 and share in (0, 1/2], got {mistakes} and {share}")
    erring = math.floor(share * classifiers + 1e-9) + 1
    note = "'at most' instead of the printed 'less than', which fails at 0 mistakes"
    return Bound(math.floor(classifiers * mistakes / erring), mistakes / share, "Lemma count", note)


def unstable_query_cutoff(num_queries: int, error: float, failure: float, num_teachers: int = 1) -> Bound:
    """Cutoff T that the session does not exhaust: Corollary privPAC.

    Each teacher misclassifies at most B = error * m + sqrt(m ln(k/failure) / 2) queries (Hoeffding, union over k teachers).
    By Lemma count fewer than 3B queries have more than k/3 dissenters, strictly if B > 0: hence T = ceil(3B) is not reached
    although the session halts *at* its T-th abstention.

    Args:
        num_queries: m, i.i.d. from the teachers' distribution.
        error: alpha + gamma, the error that every teacher stays below.
        failure: beta.
        num_teachers: k; matters only above m.
    """
    queries, error = positive_integer("num_queries", num_queries), fraction_of_one("error", error)
    failure, teachers = probability("failure", failure), positive_integer("num_teachers", num_teachers)
    printed = 3 * (error * queries + math.sqrt(queries * math.log(queries / failure) / 2))
    mistakes = error * queries + math.sqrt(queries * math.log(max(queries, teachers) / failure) / 2)
    tail = mistakes if error >= 1 or queries > _LARGEST_COUNT else float(stats.binom.isf(failure / teachers, queries, error))
    note = "ln(max(k, m)/failure), since the print needs k < m; sharp: the binomial quantile instead of Hoeffding's bound"
    cutoff, sharp = (max(1, math.ceil(3 * count)) for count in (mistakes, min(tail, mistakes)))
    return Bound(cutoff, printed, "Corollary privPAC", note, sharp)


def private_labels_error(alpha: float, best_error: float = 0.0) -> Bound:
    """Error of the private classifier on a fresh point, if every teacher's error is at most best_error + alpha: Claim ppac.

    More than a third of the teachers err on a point with probability at most 3 (best_error + alpha) by Markov's inequality;
    elsewhere the label is right, on the event that the noise stays within its bounds.
    """
    alpha, best = probability("alpha", alpha), fraction_of_one("best_error", best_error)
    note = "printed bound is valid; Markov's inequality needs no condition on m"
    return Bound(3 * best + 3 * alpha, 3 * best + 7 * alpha, "Claim ppac", note)


def student_error(alpha: float, best_error: float = 0.0) -> Bound:
    """Error of an empirical minimiser trained on the private labels: Theorems ppac and agppac.

    Args:
        alpha: accuracy of the teachers (above the best error) and twice the uniform deviation of the student's sample; m is
            such that sqrt(ln(m/failure) / (2m)) <= alpha, so that T/m <= 3 best_error + 6 alpha.
        best_error: gamma, the least error in the class; 0 in the realizable case.
    """
    alpha, best = probability("alpha", alpha), fraction_of_one("best_error", best_error)
    note = "no independence of the private labels is used: they are stateful, and the printed proof assumes that they are not"
    return Bound(7 * best + 13 * alpha, 7 * best + 15 * alpha, "Theorems ppac, agppac", note)


@dataclasses.dataclass(frozen=True)
class SampleSizes:
    """What a private learner needs: explicit sufficient numbers, not orders of magnitude.

    Attributes:
        num_examples: n, private labeled records.
        num_queries: m, public unlabeled points.
        cutoff: T, abstentions that the session must be able to pay.
        num_teachers: k; each learns from `examples_per_teacher` records.
        examples_per_teacher: n / k.
        labels_error: most of the m private labels that are wrong or abstained, as a share (T/m).
        student_error: error of the student, with probability 1 - beta.
        calibration: "tight" (the default mechanism) or "paper".
    """

    num_examples: int
    num_queries: int
    cutoff: int
    num_teachers: int
    examples_per_teacher: int
    labels_error: float
    student_error: float
    calibration: str


def sample_sizes(
    vc_dimension: int,
    alpha: float,
    beta: float,
    epsilon: float,
    delta: float,
    realizable: bool = True,
    *,
    best_error: float = 0.0,
    calibration: str = "tight",
) -> SampleSizes:
    """Turn (V, alpha, beta, epsilon, delta) into n, m, T, k: Theorems ppac (realizable) and agppac, every constant explicit.

    The failure beta is split into four: teachers, queries, noise, student. Orders, up to logarithms: n ~ V^(3/2) /
    alpha^(3/2) in the realizable and V^(3/2) / alpha^(5/2) in the agnostic case, m ~ V / alpha^2.

    Args:
        vc_dimension: V of the hypothesis class.
        alpha: accuracy; the student's error is at most 7 best_error + 13 alpha.
        beta: probability that this fails.
        epsilon: privacy.
        delta: privacy.
        realizable: whether some hypothesis of the class makes no errors.
        best_error: gamma, an upper bound on the least error in the class; only if not realizable.
        calibration: "tight" for the default mechanism, "paper" for the printed one.

    Raises:
        ArgumentError: an argument out of its range, or alpha and best_error so large that T would reach m.
    """
    dimension = positive_integer("vc_dimension", vc_dimension)
    alpha, beta = probability("alpha", alpha), probability("beta", beta)
    best = _best_error(best_error, realizable)
    part = beta / 4
    queries = max(agnostic_sample_size(alpha, part, dimension), _queries_for_slack(alpha, part))
    teachers, cutoff = _teachers_and_cutoff(queries, best + alpha, part, epsilon, delta, calibration)
    size = realizable_sample_size if realizable else agnostic_sample_size
    each = size(alpha, part / teachers, dimension)
    share = cutoff / queries
    if share >= 1:
        raise ArgumentError(f"alpha must be smaller, got {alpha}: at best_error={best} all queries might be unstable")
    return SampleSizes(teachers * each, queries, cutoff, teachers, each, share, best + 2 * share + alpha, calibration)


ErrorCurve = Callable[[int, float], float]
"""(records of one teacher, failure) -> error above the best that the teacher stays below with probability 1 - failure."""


@dataclasses.dataclass(frozen=True)
class QueryPlan:
    """How to answer m queries from n records: k teachers, cutoff T, and the bounds that then hold.

    Attributes:
        num_teachers: k.
        cutoff: T.
        alpha: every teacher's error stays below best_error + alpha.
        rate: T/m; the share of queries answered wrongly or not at all stays below it.
    """

    num_teachers: int
    cutoff: int
    alpha: float
    rate: float


def plan_queries(
    num_examples: int,
    num_queries: int,
    failure: float,
    epsilon: float,
    delta: float,
    error: ErrorCurve,
    *,
    best_error: float = 0.0,
    calibration: str = "tight",
) -> QueryPlan | None:
    """Return the plan with the smallest alpha that n records allow, or None if the theorem gives no bound at this size.

    k depends on T, T on alpha, and alpha on n/k, so this searches over alpha. The failure is split into three: teachers, queries,
    noise.
    """
    part = probability("failure", failure) / 3

    def plan(alpha: float) -> QueryPlan | None:
        teachers, cutoff = _teachers_and_cutoff(num_queries, min(1.0, best_error + alpha), part, epsilon, delta, calibration)
        each = num_examples // teachers
        enough = each > 0 and error(each, part / teachers) <= alpha
        return QueryPlan(teachers, cutoff, alpha, cutoff / num_queries) if enough else None

    low, high = 0.5, 0.5
    found = plan(high)
    while found is not None and low == high and low > 1e-12:
        low = high / 2
        better = plan(low)
        if better is not None:
            high = low
        found = better or found
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        better = plan(middle)
        low, high = (low, middle) if better is not None else (middle, high)
        found = better or found
    return found if found is not None and found.cutoff < num_queries else None


def misclassification_rate(
    vc_dimension: int,
    num_examples: int,
    num_queries: int,
    beta: float,
    epsilon: float,
    delta: float,
    realizable: bool = True,
    *,
    best_error: float = 0.0,
    calibration: str = "tight",
) -> float:
    """Share of m queries that are answered wrongly or not at all, with probability 1 - beta: Theorems class-quer-(ag)pac.

    T/m of `plan_queries` with the error curves of `pac`. Orders: m V^2 / n^2 (realizable), gamma + m^(1/3) V^(2/3) / n^(2/3)
    (agnostic), while m is at least of order 1/alpha^2. Returns 1.0 where the theorem gives no bound.
    """
    dimension, best = positive_integer("vc_dimension", vc_dimension), _best_error(best_error, realizable)
    curve = realizable_error if realizable else agnostic_error
    plan = plan_queries(
        positive_integer("num_examples", num_examples),
        positive_integer("num_queries", num_queries),
        beta,
        epsilon,
        delta,
        lambda size, failure: curve(size, dimension, failure),
        best_error=best,
        calibration=calibration,
    )
    return 1.0 if plan is None else plan.rate


def _queries_for_slack(alpha: float, failure: float) -> int:
    """Return m >= 4 ln(1 / (alpha failure)) / alpha^2, the condition of the theorems: it gives sqrt(ln(m/f) / 2m) <= alpha."""
    return math.ceil(4 * math.log(1 / (alpha * failure)) / alpha**2)


def _teachers_and_cutoff(
    num_queries: int, error: float, failure: float, epsilon: float, delta: float, calibration: str
) -> tuple[int, int]:
    """Solve k = k(T), T = T(k). T depends on k only inside a logarithm and only above m, so a few rounds converge."""
    teachers = num_queries
    for _ in range(50):
        cutoff = int(unstable_query_cutoff(num_queries, error, failure, teachers).sharp or 1)
        needed = _teachers(num_queries, cutoff, failure, epsilon, delta, calibration)
        if needed <= teachers:
            return needed, cutoff
        teachers = needed
    raise ArgumentError(f"num_queries must be larger, got {num_queries}: the number of teachers does not settle")


def _teachers(num_queries: int, cutoff: int, failure: float, epsilon: float, delta: float, calibration: str) -> int:
    epsilon, delta = positive_number("epsilon", epsilon), probability("delta", delta)
    if choice("calibration", calibration, CALIBRATIONS) == "paper":
        return int(num_teachers(epsilon, delta, num_queries, cutoff, failure).value)
    from teacher_student.privacy import calibrate

    parameters = calibrate("stability", epsilon=epsilon, delta=delta, cutoff=cutoff)
    return teachers_for_distance(distance_answered(parameters, num_queries, failure), num_queries, failure)  # type: ignore[arg-type]


def _best_error(best_error: float, realizable: bool) -> float:
    best = fraction_of_one("best_error", best_error)
    if true_or_false("realizable", realizable) and best > 0:
        raise ArgumentError(f"best_error must be 0 in the realizable case, got {best_error}; pass realizable=False")
    return best
