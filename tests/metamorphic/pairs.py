"""Pairs of runs on neighbouring tables, and what differs between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .loaders import Loader
from .mutations import RECORDS
from .outcome import INPUTS, RUN, Outcome, emptied, outcome, put_in

SHORT = f"""console=plain run_folder={RUN} privacy.epsilon=200 teachers.number={RECORDS} teachers.training.steps=2
    student.settings.epochs=1"""
"""Little noise, so that few teachers answer; as many teachers as records."""


CHEAP = "experiment=blobs learner=logistic student=logistic teachers=small"
"""The experiment whose models are the smallest."""


class World:
    """A folder in which runs start, and the outcomes on tables that were run before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[object, ...], Outcome] = {}

    def outcome(
        self,
        loader: Loader,
        change: Callable[..., Any] | None,
        words: str,
        *,
        tied: bool = False,
        earlier: str = "",
        twin: Callable[[pytest.MonkeyPatch], None] | None = None,
    ) -> Outcome:
        """Run on the loader's table, or on it with one change.

        Args:
            loader: of the private records.
            change: one of its mutations, or None for none.
            words: further words of the command; they count more than those of the loader.
            tied: see `put_in`.
            earlier: words of another run, on the usual table, that came before this one; empty for none.
            twin: breaks the program on purpose.
        """
        key = (loader, change, words, tied, earlier, twin)
        if key not in self._known:
            folder = emptied(self._folder)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TEACHER_STUDENT_LEDGER", "")
                put_in(patch, tied=tied)
                if earlier:
                    with pytest.MonkeyPatch.context() as usual:
                        loader.prepare(folder / INPUTS, usual, None)
                        assert outcome(_command(loader, f"{words} {earlier}"), folder).code == 0
                loader.prepare(folder / INPUTS, patch, change)
                if twin is not None:
                    twin(patch)
                self._known[key] = outcome(_command(loader, words), folder)
        return self._known[key]


def _command(loader: Loader, words: str) -> list[str]:
    """Return the words of a run, of every setting the last one."""
    whole = " ".join([SHORT, loader.words, words]).replace("{inputs}", INPUTS).split()
    return ["run", *{word.partition("=")[0]: word for word in whole}.values()]
