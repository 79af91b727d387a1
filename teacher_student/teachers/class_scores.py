"""Teachers' class scores: how much each says for each class, a chunk of teachers at a time. They are private, as votes are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import lightning
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teacher_student.teachers.module import PointBlock, TeacherEnsemble
from teacher_student.teachers.trainer import build_trainer, quiet
from teacher_student.teachers.training import check_points


class ClassScoreReader(lightning.LightningModule):
    """Reads the scores of one chunk through Lightning's predict loop; it owns no parameters, as the ensemble owns none.

    Args:
        ensemble: trained teachers.
        number: of the chunk.
    """

    def __init__(self, ensemble: TeacherEnsemble, number: int) -> None:
        super().__init__()
        self._ensemble = [ensemble]  # in a list, so that Lightning does not register it
        self._number = number

    def predict_step(self, batch: Tensor, batch_idx: int) -> Tensor:  # noqa: ARG002
        """Return (teachers of the chunk, points, num_classes) float32, each point's scores centred at 0; 0 where one abstains."""
        ensemble = self._ensemble[0]
        trained = ensemble.store.get(self._number)
        scores = torch.cat([scores.float().cpu() for scores in ensemble.chunk_scores(trained, batch)], dim=1)
        scores -= scores.mean(dim=-1, keepdim=True)
        unsound = ~torch.isfinite(scores).all(dim=-1, keepdim=True)
        return scores.masked_fill_(trained.abstaining[:, None, None] | unsound, 0.0)


def predict_class_scores(
    ensemble: TeacherEnsemble, public_features: object, *, trainer_options: Mapping[str, Any] | None = None
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the teachers' class scores (logits) on all public points, a chunk of teachers at a time, on one device.

    Args:
        ensemble: trained teachers. What a network adds when voting (`prediction_offset`) is added here too.
        public_features: (points, ...), like the teachers' records.
        trainer_options: for Lightning's Trainer.

    Yields:
        (teachers in the chunk, points, num_classes) float32, each point's scores centred at 0; 0 where a teacher abstains.

    Raises:
        ArgumentError: bad features or options.
    """
    points = check_points(ensemble, public_features)
    trainer = build_trainer(trainer_options)
    for number in range(ensemble.num_chunks):
        with quiet():
            scores: Any = trainer.predict(ClassScoreReader(ensemble, number), dataloaders=PointBlock(points))
        yield scores[0].numpy()
