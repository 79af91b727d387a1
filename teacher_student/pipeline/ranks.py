"""Several processes ("ranks"), each with its own teachers: the little that they say to each other.

What passes between them: the run's folder, digests that tell whether all have the same config and public points, vote counts
(integers, summed to the first rank) or, for soft labels, scores. No record and no parameter. Only the first rank makes the
shards' key, opens the session, trains the student and writes reports: a rank that is not the first returns before that.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from torch import distributed

from teacher_student.arguments import ArgumentError

_FAILED = "teacher_student/failed"
_ROWS_PER_SUM = 2**16


class Ranks:
    """This process's place among the ranks of a run.

    Args:
        rank: of this process; 0 is the first.
        world_size: number of ranks.
        environment: tells Lightning the same; None for a single process.
        store: the ranks' common key-value store.
        alive: whether the other processes that this one started are still at work.
    """

    def __init__(
        self,
        rank: int = 0,
        world_size: int = 1,
        environment: Any = None,
        store: Any = None,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self.rank, self.world_size = rank, world_size
        self._environment, self._store, self._alive = environment, store, alive

    @property
    def first(self) -> bool:
        """Whether this rank does all that is done once."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        """Whether there are other ranks."""
        return self.world_size > 1

    def trainer_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options for the teachers' Trainer, which then takes its place from here."""
        return {**options, "plugins": [self._environment]} if self.several else dict(options)

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let the first rank go through the block before the others: it downloads, writes and refuses, they read."""
        if self.several and not self.first:
            self._meet()
        yield
        if self.several and self.first:
            self._meet()

    def _meet(self) -> None:
        with self._stopping():
            distributed.barrier()

    def from_first(self, value: Any) -> Any:
        """Return the first rank's value on every rank."""
        if not self.several:
            return value
        values = [value]
        with self._stopping():
            distributed.broadcast_object_list(values)
        return values[0]

    def agree(self, name: str, value: object) -> None:
        """Make sure that every rank has the same value.

        Raises:
            ArgumentError: this rank has another than the first.
        """
        if self.from_first(value) != value:
            raise ArgumentError(f"{name} must be the same for all processes of a run, but differs between rank 0 and {self.rank}")

    def sum_to_first(self, counts: npt.NDArray[np.integer]) -> None:
        """Sum tables over ranks into the first rank's, in place, some rows at a time. The others' are of no further use.

        Args:
            counts: (rows, columns), of a type that holds the sums.
        """
        if not self.several:
            return
        for first in range(0, len(counts), _ROWS_PER_SUM):
            part = counts[first : first + _ROWS_PER_SUM]
            sums = torch.from_numpy(part.astype(np.int64))
            with self._stopping():
                distributed.reduce(sums, 0)
            if self.first:
                part[...] = sums.numpy()

    def check(self) -> None:
        """Stop if another rank has stopped.

        Raises:
            ArgumentError: it has.
        """
        if not self.several:
            return
        with self._stopping():
            failed = self._store.check([_FAILED])
        if failed or not self._alive():
            self.stop()

    def fail(self, reason: str) -> None:
        """Tell the other ranks that this one stops."""
        with contextlib.suppress(RuntimeError):
            if self.several and not self._store.check([_FAILED]):
                self._store.set(_FAILED, reason)

    @contextlib.contextmanager
    def _stopping(self) -> Iterator[None]:
        """A broken connection means that another rank has stopped."""
        try:
            yield
        except RuntimeError as error:
            self.stop(error)

    def stop(self, cause: BaseException | None = None) -> NoReturn:
        """Say why another rank has stopped, as far as it could tell.

        Raises:
            ArgumentError: always.
        """
        reason = "a process of this run stopped"
        with contextlib.suppress(RuntimeError):
            if self._store.check([_FAILED]):
                reason = self._store.get(_FAILED).decode()
        raise ArgumentError(f"{reason}; all processes stop, nothing was spent") from cause


ALONE = Ranks()
"""A process by itself."""


def digest(array: npt.NDArray[Any]) -> str:
    """Return a hash of an array, to compare between ranks."""
    state = hashlib.blake2b(f"{array.dtype} {array.shape}".encode(), digest_size=16)
    state.update(np.ascontiguousarray(array).data.cast("B"))
    return state.hexdigest()
