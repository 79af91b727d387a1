"""Teachers' probabilities instead of their votes: what soft labels are made of. They are private, as votes are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import lightning
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teacher_student import arguments
from teacher_student.arguments import ArgumentError
from teacher_student.teachers.module import PointBlock, TeacherEnsemble
from teacher_student.teachers.trainer import build_trainer, quiet
from teacher_student.teachers.training import check_points

_BLOCK = 16_384


class ScoreReader(lightning.LightningModule):
    """Reads an ensemble's probabilities through Lightning's predict loop; it owns no parameters, as the ensemble owns none.

    Args:
        ensemble: trained teachers of two classes.
    """

    def __init__(self, ensemble: TeacherEnsemble) -> None:
        super().__init__()
        self._ensemble = [ensemble]  # in a list, so that Lightning does not register it

    def predict_step(self, batch: Tensor, batch_idx: int) -> Tensor:  # noqa: ARG002
        """Return (points, num_teachers) float32 probabilities of class 1; NaN abstains."""
        ensemble = self._ensemble[0]
        scores = torch.zeros((len(batch), ensemble.num_teachers))
        for number in ensemble.chunks_of_rank(self.global_rank, self.trainer.world_size):
            shards = ensemble.shards_of(number)
            scores[:, shards.start : shards.stop] = _chunk_probabilities(ensemble, number, batch)
        return _gathered(scores, self.device)


def _chunk_probabilities(ensemble: TeacherEnsemble, number: int, points: Tensor) -> Tensor:
    trained, parts = ensemble.store.get(number), []
    for scores in ensemble.chunk_scores(trained, points):
        probabilities = scores.float().softmax(-1)[..., 1]
        parts.append(probabilities.masked_fill_(~torch.isfinite(scores).all(-1), torch.nan).T.cpu())
    return torch.cat(parts).masked_fill_(trained.abstaining, torch.nan)


def _gathered(scores: Tensor, device: torch.device) -> Tensor:
    """Put the ranks' scores side by side: every score was computed on one rank, the others hold 0 there; NaN stays NaN."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return scores
    summed = scores.to(device)
    torch.distributed.all_reduce(summed)
    return summed.cpu()


def predict_scores(
    ensemble: TeacherEnsemble,
    public_features: object,
    *,
    block: int = _BLOCK,
    trainer_options: Mapping[str, Any] | None = None,
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the teachers' probabilities of class 1 on public points, a block at a time, through Lightning's predict loop.

    Args:
        ensemble: trained teachers of two classes. What a network adds when voting (`prediction_offset`) is added here too.
        public_features: (points, ...), like the teachers' records.
        block: points in a block.
        trainer_options: for Lightning's Trainer.

    Yields:
        (points in the block, num_teachers) float32 in [0, 1]; NaN where a teacher abstains.

    Raises:
        ArgumentError: teachers of more than two classes, bad features or options.
    """
    if ensemble.num_classes != 2:
        raise ArgumentError(f"num_classes must be 2 for scores, got {ensemble.num_classes}")
    points = check_points(ensemble, public_features)
    size = min(arguments.positive_integer("block", block), max(1, len(points)))
    if len(points) == 0:
        return
    trainer, reader = build_trainer(trainer_options), ScoreReader(ensemble)
    for part in points.split(size):
        with quiet():
            scores: Any = trainer.predict(reader, dataloaders=PointBlock(part))
        yield scores[0].numpy()
