"""Self-training: fit, label the confident unlabeled points, fit again from the start.

Yarowsky 1995; Xie et al., "Noisy Student", CVPR 2020. Unlike pseudo-labels within a fit, a wrong guess of an early step does not
reinforce itself.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional as F

from teacher_student.student.methods.supervised import Supervised
from teacher_student.student.targets import Targets


class SelfTraining(Supervised):
    """`rounds` fits; from the second on, guesses of at least `confidence` are labels of weight `unlabeled_weight`."""

    @property
    def rounds(self) -> int:
        """As the settings say."""
        return self.settings.rounds

    def next_targets(self, targets: Targets, probabilities: Tensor) -> Targets:
        """Return the released targets and the confident guesses; a guess is a clean class, so noise is put on it as on labels."""
        confident, classes = probabilities.max(dim=1)
        guessed = torch.as_tensor(targets.unlabeled) & (confident >= self.settings.confidence)
        guesses = self.noise.released(F.one_hot(classes, probabilities.shape[1]).to(probabilities.dtype))
        taken = torch.where(guessed[:, None], guesses, torch.as_tensor(targets.probabilities))
        weights = torch.where(guessed, self.settings.unlabeled_weight, torch.as_tensor(targets.weights))
        return dataclasses.replace(targets, probabilities=taken.numpy(), weights=weights.numpy())
