"""Audits: machinery that must reject a wrong mechanism, and proves it on broken twins.

Three kinds of check, from certain to broad (see `checks`): exact divergences by summation, functional checks, and sampled ones
with a stated false-alarm rate. `audit` runs them all on a mechanism and on its broken twins.
"""

from teacher_student.auditing.audit import AuditReport, audit
from teacher_student.auditing.exact import QueryPair, ThresholdLaw, outcomes
from teacher_student.auditing.pairs import NeighbourVotes

__all__ = ["AuditReport", "NeighbourVotes", "QueryPair", "ThresholdLaw", "audit", "outcomes"]
