"""The algorithm boxes, one file each: integer noise in, labels out. NumPy and OpenDP only; each mechanism owns its cost."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Mechanism": "interface",
    "State": "interface",
    "build_mechanism": "interface",
    "GeneratorNoise": "noise",
    "Noise": "noise",
    "RecordedNoise": "noise",
    "SystemNoise": "noise",
    "distance_to_instability": "stability",
}

__all__ = [
    "GeneratorNoise",
    "Mechanism",
    "Noise",
    "RecordedNoise",
    "State",
    "SystemNoise",
    "build_mechanism",
    "distance_to_instability",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
