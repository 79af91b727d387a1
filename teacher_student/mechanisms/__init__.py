"""The algorithm boxes, one file each: integer noise in, labels out. NumPy and OpenDP only; each mechanism owns its cost."""

from __future__ import annotations

from teacher_student.lazy import exported

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

__getattr__, __dir__ = exported(__name__, _HOMES, __all__)
