"""Privacy as numbers: neighbours, costs, calibration, composition, certificates. No data, no noise, no networks."""

from typing import Any

from teacher_student.privacy.accountant import Composition
from teacher_student.privacy.bounds import teachers_needed, teachers_printed, teachers_tight
from teacher_student.privacy.calibration import calibrate, calibrate_soft, parameters_from_dict
from teacher_student.privacy.certificate import HYPERPARAMETERS, Certificate
from teacher_student.privacy.filters import FILTERS, BasicFilter, Claim, Filter, GaussianFilter, RenyiFilter, make_filter
from teacher_student.privacy.noisy_max import ConfidentGNMax, Exponential, GNMax, LNMax, NoisyMaxParameters
from teacher_student.privacy.noisy_sums import NoisyFraction, NoisyScores
from teacher_student.privacy.parameters import NEIGHBOURS, LabelSpec, MechanismSpec, Parameters
from teacher_student.privacy.registry import LABELS, register
from teacher_student.privacy.selection import PrivateSelection, calibrate_selection
from teacher_student.privacy.svt_fixed_threshold import Stability, StabilityLaplace
from teacher_student.privacy.svt_resampled_threshold import StabilityPaper, StabilityRedraw
from teacher_student.privacy.threshold import ThresholdParameters

__all__ = [
    "FILTERS",
    "HYPERPARAMETERS",
    "MECHANISMS",
    "NEIGHBOURS",
    "BasicFilter",
    "Certificate",
    "Claim",
    "Composition",
    "ConfidentGNMax",
    "Exponential",
    "Filter",
    "GNMax",
    "GaussianFilter",
    "LNMax",
    "LabelSpec",
    "MechanismSpec",
    "NoisyFraction",
    "NoisyMaxParameters",
    "NoisyScores",
    "Parameters",
    "PrivateSelection",
    "RenyiFilter",
    "Stability",
    "StabilityLaplace",
    "StabilityPaper",
    "StabilityRedraw",
    "ThresholdParameters",
    "calibrate",
    "calibrate_selection",
    "calibrate_soft",
    "make_filter",
    "parameters_from_dict",
    "register",
    "teachers_needed",
    "teachers_printed",
    "teachers_tight",
]


def __getattr__(name: str) -> Any:
    """Return `MECHANISMS`, the names of all that release labels; they are looked for when they are first asked for."""
    if name == "MECHANISMS":
        return tuple(LABELS)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
