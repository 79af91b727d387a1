"""The composition root: the only room that knows every other.

| module | what |
|---|---|
| settings, budget | what a run needs, checked before anything is written; the account that it pays from |
| folder | private/ and release/, and files that are written atomically |
| stages | shards, teachers, votes, students: each resumes where a killed run stopped |
| rounds, modes | teachers, statistic, session, student: one loop, and what each kind of answers adds |
| processes | several processes, each with its own teachers |
| runner | a whole run, and the publishable report |
| diagnostics | the student's figures, and the private report |
| published | the student as published files, and its predictions for raw rows |
| files | label a file of predictions, verify a folder |
| attack | the membership audit: whole runs in many small worlds |

Names are loaded when first used: verifying a folder needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teacher_student.lazy import exported

if TYPE_CHECKING:
    from teacher_student.pipeline.attack import attack_student
    from teacher_student.pipeline.budget import BudgetSettings
    from teacher_student.pipeline.files import label_file, select_file, verify_folder
    from teacher_student.pipeline.published import load_student, predict_file
    from teacher_student.pipeline.runner import RunResult, run
    from teacher_student.pipeline.settings import BoostingSettings, PrivacySettings, RunSettings

_HOMES = {
    "BudgetSettings": "budget",
    "BoostingSettings": "settings",
    "PrivacySettings": "settings",
    "RunResult": "runner",
    "RunSettings": "settings",
    "attack_student": "attack",
    "label_file": "files",
    "load_student": "published",
    "predict_file": "published",
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
