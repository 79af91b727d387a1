"""From predictions to a release: votes are counted, a session asks the mechanism, and only a `Release` leaves the room."""

from __future__ import annotations

import importlib

_HOMES = {
    "LabelSession": "session",
    "Release": "release",
    "VoteCounter": "votes",
    "count_votes": "votes",
    "label": "label",
}

__all__ = ["LabelSession", "Release", "VoteCounter", "count_votes", "label"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
