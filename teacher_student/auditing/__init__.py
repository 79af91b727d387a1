"""Audits: checks that must reject a wrong mechanism, and are shown to do so on mutants.

Three kinds of check, from certain to broad (see `checks`): exact divergences by summation, checks without any false alarm, and
sampled ones with a stated false-alarm rate. `audit` runs them on a mechanism and on its mutants (see `under_test`).
"""

from teacher_student.auditing.audit import AuditReport, audit
from teacher_student.auditing.exact import QueryPair, ThresholdLaw, outcomes
from teacher_student.auditing.pairs import NeighbourVotes

__all__ = ["AuditReport", "NeighbourVotes", "QueryPair", "ThresholdLaw", "audit", "outcomes"]
