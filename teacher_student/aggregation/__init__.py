"""From predictions to a release: votes are counted, a session asks the mechanism, and only a `Release` leaves the room."""

from __future__ import annotations

import importlib

_HOMES = {
    "Account": "ledger",
    "LabelSession": "label_session",
    "Ledger": "ledger",
    "Release": "release",
    "SoftLabelSession": "soft_label",
    "SoftRelease": "soft_release",
    "add_votes": "votes",
    "count_votes": "votes",
    "empty_counts": "votes",
    "label": "labelling",
    "label_soft": "soft_label",
}

__all__ = [
    "Account",
    "LabelSession",
    "Ledger",
    "Release",
    "SoftLabelSession",
    "SoftRelease",
    "add_votes",
    "count_votes",
    "empty_counts",
    "label",
    "label_soft",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
