"""What trained teachers say of public points: votes, probabilities or class scores. All of it is private.

Networks are asked through Lightning's predict loop, which brings points to the devices; learners through their own `predict`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teacher_student import arguments
from teacher_student.arguments import ArgumentError
from teacher_student.labels import ABSTAIN, vote_type
from teacher_student.teachers.chunk import as_numbers, untrained
from teacher_student.teachers.engines import num_classes_of
from teacher_student.teachers.learners import LearnerEnsemble
from teacher_student.teachers.module import OneBatchPerEpoch, Reading, TeacherEnsemble
from teacher_student.teachers.records import as_tensor
from teacher_student.teachers.trainer import build_trainer, one_thread_if_small, silence_lightning, summed_over_ranks

_BLOCK = 16_384


def predict_votes(
    ensemble: TeacherEnsemble | LearnerEnsemble,
    public_features: object,
    *,
    block: int = _BLOCK,
    trainer_options: Mapping[str, Any] | None = None,
    joined: bool = True,
) -> Iterator[npt.NDArray[np.signedinteger]]:
    """Yield the teachers' votes on public points, a block at a time.

    Args:
        ensemble: trained teachers.
        public_features: (points, ...), like the teachers' records.
        block: points in a block.
        trainer_options: for Lightning's Trainer.
        joined: whether several ranks put their votes together; if not, each yields its own teachers' votes, -1 for all others.

    Yields:
        (points in the block, num_teachers), of the type of `labels.vote_type`; -1 where a teacher abstains.

    Raises:
        ArgumentError: bad features or options.
    """
    if isinstance(ensemble, LearnerEnsemble):
        yield from ensemble.predict_votes(public_features, block=block)
        return
    yield from _in_blocks(ensemble, public_features, votes_of(ensemble.num_classes), block, trainer_options, joined)


def votes_of(num_classes: int) -> Reading:
    """Return the reading of votes: the class with the largest score."""
    return Reading(lambda scores: scores.max(-1).indices, getattr(torch, vote_type(num_classes).name), ABSTAIN)


def predict_scores(
    ensemble: TeacherEnsemble,
    public_features: object,
    *,
    block: int = _BLOCK,
    trainer_options: Mapping[str, Any] | None = None,
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the probabilities of class 1 that teachers of two classes give public points, a block at a time, for soft labels.

    Arguments are those of `predict_votes`. What a network adds when voting (`prediction_offset`) is added here too.

    Yields:
        (points in the block, num_teachers) float32 in [0, 1]; NaN where a teacher abstains.

    Raises:
        ArgumentError: teachers of more than two classes, bad features or options.
    """
    if ensemble.num_classes != 2:
        raise ArgumentError(f"num_classes must be 2 for scores, got {ensemble.num_classes}")
    probabilities = Reading(lambda scores: scores.float().softmax(-1)[..., 1], torch.float32, torch.nan)
    yield from _in_blocks(ensemble, public_features, probabilities, block, trainer_options)


def predict_class_scores(
    ensemble: TeacherEnsemble | LearnerEnsemble, public_features: object, *, trainer_options: Mapping[str, Any] | None = None
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the teachers' scores of each class on all public points, a chunk of teachers at a time, on one device.

    Arguments are those of `predict_votes`. Networks give logits, with what they add when voting (`prediction_offset`); learners
    give probabilities.

    Yields:
        (teachers in the chunk, points, num_classes) float32, each point's scores centred at 0; 0 where a teacher abstains.

    Raises:
        ArgumentError: bad features or options.
    """
    if isinstance(ensemble, LearnerEnsemble):
        yield from ensemble.predict_class_scores(public_features)
        return
    points, trainer = _checked_points(ensemble, public_features), build_trainer(trainer_options)
    logits = Reading(lambda scores: scores.float(), torch.float32, torch.nan)
    for number in range(ensemble.num_chunks):
        (scores,) = _ask(trainer, ensemble, points, logits, [number])
        with torch.inference_mode():  # Lightning predicts in it, and such tensors can only be changed there
            scores -= scores.mean(dim=-1, keepdim=True)
            scores.masked_fill_(~torch.isfinite(scores).all(dim=-1, keepdim=True), 0.0)
        yield scores.numpy()


def _in_blocks(
    ensemble: TeacherEnsemble,
    public_features: object,
    reading: Reading,
    block: int,
    trainer_options: Mapping[str, Any] | None,
    joined: bool = True,
) -> Iterator[npt.NDArray[Any]]:
    """Yield (points in the block, num_teachers) values; the other ranks' columns are silent where ranks are not joined."""
    points = _checked_points(ensemble, public_features)
    size = min(arguments.positive_integer("block", block), max(1, len(points)))
    if len(points) == 0:
        return
    trainer = build_trainer(trainer_options)
    mine = ensemble.chunks_of_rank(trainer.global_rank, trainer.world_size)
    for part in points.split(size):
        table = torch.full((len(part), ensemble.num_teachers), 0 if joined else reading.silent, dtype=reading.dtype)
        for number, said in zip(mine, _ask(trainer, ensemble, part, reading, mine), strict=True):
            shards = ensemble.shards_of(number)
            table[:, shards.start : shards.stop] = said.T
        yield (summed_over_ranks(table, trainer) if joined else table).numpy()


def _ask(trainer: Any, ensemble: TeacherEnsemble, points: Tensor, reading: Reading, numbers: list[int]) -> list[Tensor]:
    with silence_lightning(), one_thread_if_small(ensemble.engine.network):
        said: Any = trainer.predict(ensemble, dataloaders=OneBatchPerEpoch([(points, reading, numbers)]))
    return said[0]


def _checked_points(ensemble: TeacherEnsemble, public_features: object) -> Tensor:
    """Return public points as a tensor.

    An untrained network scores all of them first: a failure on public points alone is refused here, and a later failure
    follows from a teacher's records and makes it abstain.
    """
    points = as_tensor("public_features", public_features)
    if points.ndim < 2:
        raise ArgumentError(f"public_features must be (points, ...) numbers, got {points.dtype} of shape {tuple(points.shape)}")
    with torch.random.fork_rng(devices=[]):
        num_classes_of(ensemble.network, torch.zeros((2, *points.shape[1:]), dtype=ensemble.settings.dtype))
        try:
            for part in ensemble.passes(points, 1):
                ensemble.engine.scores(untrained(ensemble.engine, 1), as_numbers(part, ensemble.settings.dtype).clone())
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ArgumentError(f"public_features must be points that the network takes, but it fails: {reason}") from error
    return points
