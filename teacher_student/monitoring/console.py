"""One progress display for a run, and the tables at its end.

Modes: `rich` (a live display, the default on a terminal), `plain` (for logs: a line where a stage begins and where it ends, and
now and then between) and `quiet`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table

from teacher_student.arguments import choice

MODES = ("auto", "rich", "plain", "quiet")

EVERY = 20.0
"""Seconds between two lines of a long stage in a log."""

Advance = Callable[[int, str], None]
"""Called with how much is done and a short note, which replaces the one before; the last one stays."""


class Display:
    """Shows stages one after the other and remembers how long each took.

    Args:
        mode: one of `MODES`; `auto` is `rich` on a terminal and `plain` elsewhere.
    """

    def __init__(self, mode: str = "auto") -> None:
        choice("console", mode, MODES)
        self.mode = ("rich" if sys.stdout.isatty() else "plain") if mode == "auto" else mode
        self.console = Console(quiet=self.mode == "quiet", highlight=False, width=None if self.mode == "rich" else 110)
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Advance]:
        """Show a stage while it runs; yields the function that reports its progress."""
        start = said = time.perf_counter()
        note = ""
        if self.mode == "plain":
            self.say(f"{name} ...")
        with self._bar(counted=total is not None) if self.mode == "rich" else contextlib.nullcontext() as bar:
            task = None if bar is None else bar.add_task(name, total=total, note="")

            def advance(done: int, text: str = "") -> None:
                nonlocal note, said
                note, now = text, time.perf_counter()
                if self.mode == "plain" and total and done < total and now - said > EVERY:
                    said = now
                    self.say(f"{name:<12} {now - start:7.1f} s  {done:,} of {total:,} {text}".rstrip())
                if bar is not None and task is not None:
                    bar.update(task, completed=done, note=note)

            yield advance
            if bar is not None and task is not None:
                bar.update(task, total=total or 1, completed=total or 1)
        self.seconds[name] = time.perf_counter() - start
        if self.mode == "plain":
            self.console.print(f"{name:<12} {self.seconds[name]:7.1f} s  {note}".rstrip(), soft_wrap=True)

    def _bar(self, *, counted: bool) -> Progress:
        return Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=28),
            *([MofNCompleteColumn()] if counted else []),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", table_column=Column(overflow="fold", ratio=1)),
            console=self.console,
        )

    def table(self, title: str, rows: Mapping[str, object]) -> None:
        """Print named values. None of them may be private."""
        table = Table(title=title, title_justify="left", show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for name, value in rows.items():
            table.add_row(name, str(value))
        self.console.print(table)

    def grid(self, title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
        """Print figures by model (a row each) and metric (a column each). None of them may be private."""
        columns = list(dict.fromkeys(name for row in rows.values() for name in row))
        table = Table(title=title, title_justify="left")
        table.add_column("", style="bold")
        for column in columns:
            table.add_column(column, justify="right")
        for name, row in rows.items():
            table.add_row(name, *(f"{row[column]:.4f}" if column in row else "" for column in columns))
        self.console.print(table)

    def warn(self, text: str) -> None:
        """Print a warning of public numbers, before anything is spent."""
        self.say(f"Warning: {text} To stop here (Ctrl-C) spends nothing.")

    def alert(self, text: str) -> None:
        """Print what speaks against a finished release."""
        self.say(f"Alert: {text}")

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, soft_wrap=True)
