"""The paper's theorems as functions, estimators of their assumptions, and experiments that compare them with measurements.

Every bound is a `Bound`: the value that holds for the corrected algorithm, the printed value, and, where the same argument gives
more, a sharper value. Nothing here touches data or mechanisms; only `privacy` is used, for calibrated scales.
"""

from __future__ import annotations

from teacher_student.lazy import exported

_HOMES = {
    "Bound": "bound",
    "Consistency": "estimators",
    "Estimate": "estimators",
    "QueryPlan": "classification",
    "SampleSizes": "classification",
    "agnostic_error": "pac",
    "agnostic_sample_size": "pac",
    "bin_width": "soft_labels",
    "concentration_radius": "soft_labels",
    "consistency_of_randomization": "estimators",
    "disputed_queries": "classification",
    "distance_answered": "release_utility",
    "loglog_slope": "experiments",
    "mean_score": "estimators",
    "misclassification_rate": "classification",
    "num_bins": "soft_labels",
    "num_teachers": "release_utility",
    "on_average_stability": "estimators",
    "one_pass_stability": "gradient_descent",
    "online_release_distance": "release_utility",
    "plan_queries": "classification",
    "private_labels_error": "classification",
    "realizable_error": "pac",
    "realizable_sample_size": "pac",
    "sample_sizes": "classification",
    "score_error": "soft_labels",
    "share_beyond": "estimators",
    "soft_num_teachers": "soft_labels",
    "soft_threshold": "soft_labels",
    "sparse_vector_margin": "release_utility",
    "run_task": "experiments",
    "stability_test_distance": "release_utility",
    "stable_histogram_gap": "soft_labels",
    "strong_quality": "estimators",
    "strong_quality_teachers": "soft_labels",
    "strongly_convex_constant_step": "gradient_descent",
    "student_error": "classification",
    "sweep": "sweeps",
    "teachers_for_concentration": "soft_labels",
    "threshold_error": "pac",
    "uniform_deviation": "pac",
    "unstable_query_cutoff": "classification",
    "weak_quality": "estimators",
}

__all__ = [*_HOMES]  # noqa: PLE0604

__getattr__, __dir__ = exported(__name__, _HOMES, __all__)
