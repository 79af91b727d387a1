"""The composition root: the only room that knows every other.

| module | what |
|---|---|
| settings, privacy_settings | what a run needs, checked before anything is written |
| folder | private/ and release/ |
| budget | the account in a ledger that a run pays from |
| stages | shards, teachers, student: each takes up where a killed run stopped |
| rounds, modes | teachers, statistic, session, student: one loop, and what each kind of answers adds |
| boosting, query_rounds | teachers that correct the student; queries chosen batch by batch |
| ranks, launch | several processes, each with its own teachers |
| runner | the whole way, and the reports at its end |
| student_files, published_student, predicting | the student as published files, and at work on raw rows |
| files | label a file of predictions, verify a folder |
| attack, worlds | the membership audit: whole runs in many small worlds |

Names are loaded when first used: verifying a folder needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teacher_student.lazy import exported

if TYPE_CHECKING:
    from teacher_student.pipeline.attack import attack_student
    from teacher_student.pipeline.budget import BudgetSettings
    from teacher_student.pipeline.files import label_file, select_file, verify_folder
    from teacher_student.pipeline.predicting import predict_file
    from teacher_student.pipeline.privacy_settings import BoostingSettings, PrivacySettings
    from teacher_student.pipeline.runner import RunResult, run
    from teacher_student.pipeline.settings import RunSettings
    from teacher_student.pipeline.student_files import load_student

_HOMES = {
    "BudgetSettings": "budget",
    "BoostingSettings": "privacy_settings",
    "PrivacySettings": "privacy_settings",
    "RunResult": "runner",
    "RunSettings": "settings",
    "attack_student": "attack",
    "label_file": "files",
    "load_student": "student_files",
    "predict_file": "predicting",
    "run": "runner",
    "select_file": "files",
    "verify_folder": "files",
}

__all__ = [
    "BoostingSettings",
    "BudgetSettings",
    "PrivacySettings",
    "RunResult",
    "RunSettings",
    "attack_student",
    "label_file",
    "load_student",
    "predict_file",
    "run",
    "select_file",
    "verify_folder",
]

__getattr__, __dir__ = exported(__name__, _HOMES, __all__, {"CorrectionSettings": "BoostingSettings"})
