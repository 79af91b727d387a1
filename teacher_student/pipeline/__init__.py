"""The composition root: the only room that knows every other.

settings   what a run needs, checked before anything is written
folder     private/ and release/
stages     shards, teachers, votes, labels, student: each takes up where a killed run stopped
run        the whole way, and the reports at its end
files      label a file of predictions, verify a folder
"""

from teacher_student.pipeline.files import label_file, verify_folder
from teacher_student.pipeline.run import RunResult, run
from teacher_student.pipeline.settings import PrivacySettings, RunSettings
from teacher_student.pipeline.student_files import load_student

__all__ = ["PrivacySettings", "RunResult", "RunSettings", "label_file", "load_student", "run", "verify_folder"]
