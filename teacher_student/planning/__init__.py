"""Planning: what to expect of a mechanism and how to set it, before any vote is cast.

Only public numbers go in, so nothing here costs privacy.

| module | what |
|---|---|
| `request` | what is wanted, in public sizes, and the search for the best parameters |
| `report` | `plan`: every mechanism beside the others, as a table |
| `search` | `choose`: teachers and mechanism together, on votes of a public stand-in |
| `local_votes` | `plan_records`: points to ask and votes of a record, where every record is a teacher |
| `recipe` | settings of a run for which nothing was chosen |
| `preflight` | warnings before a run, such as one from which hardly any label is to be expected |
"""

from __future__ import annotations

from teacher_student.planning.local_votes import RecordPlan, plan_records
from teacher_student.planning.report import Plan, plan
from teacher_student.planning.request import Request
from teacher_student.planning.search import Choices, choose

__all__ = ["Choices", "Plan", "RecordPlan", "Request", "choose", "plan", "plan_records"]
