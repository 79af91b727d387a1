"""Learning from public points that carry no label: the semi-supervised half of the knowledge transfer.

Points that were halted, or whose paid non-answer is to count as unlabeled, still show where public data lies. The student's
own confident predictions serve as their labels (pseudo-labels; Lee, "Pseudo-Label", ICML 2013 workshop). This is
post-processing: it looks at public features and the student alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def pseudo_label_loss(logits: Tensor, unlabeled: Tensor, confidence: float) -> Tensor:
    """Return the cross-entropy of confident unlabeled points against the student's own prediction.

    Args:
        logits: (batch, num_classes).
        unlabeled: (batch,) bool, the points without a target.
        confidence: smallest probability at which a prediction serves as a label.

    Returns:
        Scalar: summed over the confident unlabeled points, divided by all unlabeled points of the batch, so that an unsure
        student is pulled less.
    """
    probabilities, guesses = F.softmax(logits.detach(), dim=-1).max(dim=-1)
    counts = unlabeled & (probabilities >= confidence)
    losses = F.cross_entropy(logits, guesses, reduction="none")
    return torch.where(counts, losses, torch.zeros_like(losses)).sum() / unlabeled.sum().clamp_min(1)
