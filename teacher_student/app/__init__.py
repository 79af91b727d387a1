"""The command line: verbs over Hydra configs. The only room that imports hydra.

From the words of a command to what is done:

    command_line    which verb, help, exit code
    running, verbs  what each verb does
    composing       overrides to a config;  configs: where they are;  slips: what was meant
    settings        a config to the settings of a run
"""

from __future__ import annotations

from teacher_student.app.command_line import VERBS, dispatch, main
from teacher_student.app.composing import compose
from teacher_student.app.configs import conf_folder
from teacher_student.app.settings import settings_from_config

__all__ = ["VERBS", "compose", "conf_folder", "dispatch", "main", "settings_from_config"]
