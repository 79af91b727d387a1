"""A process that kills itself at a chosen place: what the kill tests of several rooms share."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any


class Assassin:
    """A trace function that kills its process before the n-th line, or instruction, that is executed in a folder.

    Args:
        folder: whose code counts.
        event: `line` or `opcode`.
        number: how many are executed before the end.
    """

    def __init__(self, folder: str, event: str, number: int) -> None:
        self.folder, self.event, self.left = folder, event, number

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(self.folder):
            return None
        frame.f_trace_opcodes = self.event == "opcode"
        if event == self.event:
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self
