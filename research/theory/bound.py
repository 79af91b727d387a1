"""A bound of a theorem: as printed, corrected, and the sharpest that the same argument proves."""

from __future__ import annotations

import dataclasses

PAPER = "Bassily, Thakkar, Thakurta 2018 (arXiv:1803.05101v2)"
"""The paper whose numbering every statement here uses; names in brackets are its own labels."""


@dataclasses.dataclass(frozen=True)
class Bound:
    """One bound of one theorem.

    Attributes:
        value: the bound that holds for the corrected algorithm (see the privacy page's errata); `float(bound)` returns it.
        printed: the bound with the paper's constants, or None where the paper gives only an order.
        sharp: the best constant that follows from the same argument, or None where `value` is already that.
        statement: the theorem, by the paper's label.
        note: the difference, in one sentence; empty if there is none.
    """

    value: float
    printed: float | None
    statement: str
    note: str = ""
    sharp: float | None = None

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        printed = "" if self.printed is None else f", printed {self.printed:.6g}"
        sharp = "" if self.sharp is None else f", sharp {self.sharp:.6g}"
        return f"{self.value:.6g} ({self.statement}{printed}{sharp})"
