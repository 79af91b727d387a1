"""An extension of griffe, which reads the docstrings for the site: doctests at the end of a docstring are its examples."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Give doctests that follow a blank line the heading under which Google's style keeps them."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is None:
            return
        text, found, doctests = (f"\n\n{obj.docstring.value}").partition("\n\n>>> ")
        if found and not re.search(r"^Examples?:", text, flags=re.MULTILINE):
            obj.docstring.value = f"{text}\n\nExamples:\n{textwrap.indent('>>> ' + doctests, '    ')}".lstrip("\n")
