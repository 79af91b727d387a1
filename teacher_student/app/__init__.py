"""The command line: verbs over Hydra configs. The only room that imports hydra.

command_line    which verb, help, exit code
running, verbs  what each verb does
composing       overrides to a config, and what was meant by a wrong one
settings        a config to the settings of a run
"""

from __future__ import annotations

from teacher_student.app.command_line import VERBS, dispatch, main
from teacher_student.app.composing import compose, conf_folder
from teacher_student.app.settings import settings_from_config

__all__ = ["VERBS", "compose", "conf_folder", "dispatch", "main", "settings_from_config"]
