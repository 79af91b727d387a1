"""FreeMatch's thresholds; that it teaches, repeats itself and takes images, test_methods shows of every method."""

from __future__ import annotations

import torch

from teacher_student.student.methods.freematch import class_thresholds


def test_thresholds_follow_confidence_and_are_lower_for_rare_classes():
    unsure = torch.tensor([[0.4, 0.3, 0.3]] * 8)
    sure = torch.tensor([[0.98, 0.01, 0.01]] * 6 + [[0.1, 0.8, 0.1]] * 2)
    assert torch.allclose(class_thresholds(unsure), torch.tensor([0.4, 0.3, 0.3]))
    often, rare, never = class_thresholds(sure).tolist()
    assert often > class_thresholds(unsure)[0] > rare > never
