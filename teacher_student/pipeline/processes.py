"""Several processes ("ranks"), each with its own teachers: how they are launched, and the little that they tell each other.

torchrun or Slurm has started the processes, or the first one starts the others. What passes between them: the run's folder,
digests that tell whether all have the same config and public points, vote counts (integers, summed to the first rank) and, for
soft labels, scores. No record and no parameter. Only the first rank makes the shards' key, opens the session, trains the student
and writes reports: the others return before that.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from lightning.fabric.plugins.environments import (
    ClusterEnvironment,
    LightningEnvironment,
    SLURMEnvironment,
    TorchElasticEnvironment,
)
from torch import distributed

from teacher_student.arguments import ArgumentError
from teacher_student.teachers.trainer import build_trainer

_FAILED = "teacher_student/failed"
_ROWS_PER_SUM = 2**16
_MEETING = timedelta(minutes=10)  # all processes must have come together by then
_TRAINING = timedelta(days=30)  # one rank may train that long after another has finished


class Ranks:
    """This process's place among the ranks of a run; by default it is alone.

    Args:
        environment: Lightning's view of the ranks; None for a single process.
        store: the ranks' common key-value store.
        alive: whether the other processes that this one started are still running.
    """

    def __init__(
        self, environment: ClusterEnvironment | None = None, store: Any = None, alive: Callable[[], bool] = lambda: True
    ) -> None:
        self._environment, self._store, self._alive = environment, store, alive
        self.rank, self.world_size = (environment.global_rank(), environment.world_size()) if environment else (0, 1)

    @property
    def first(self) -> bool:
        """Whether this rank does everything that is done once."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        """Whether there are other ranks."""
        return self.world_size > 1

    def trainer_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options for the teachers' Trainer, which learns its rank from here."""
        return {**options, "plugins": [self._environment]} if self.several else dict(options)

    @contextlib.contextmanager
    def first_rank_first(self) -> Iterator[None]:
        """Let the first rank go through the block before the others: it downloads, writes and refuses; they read."""
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

    def assert_same(self, name: str, value: object) -> None:
        """Refuse a value that differs from the first rank's.

        Raises:
            ArgumentError: it does.
        """
        if self.from_first(value) != value:
            raise ArgumentError(f"{name} must be the same for all processes of a run, but differs between rank 0 and {self.rank}")

    def sum_to_first(self, counts: npt.NDArray[np.integer]) -> None:
        """Sum tables over ranks into the first rank's, in place. The others' are of no further use.

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
        """Say why another rank has stopped, if it could tell.

        Raises:
            ArgumentError: always.
        """
        reason = "a process of this run stopped"
        with contextlib.suppress(RuntimeError):
            if self._store.check([_FAILED]):
                reason = self._store.get(_FAILED).decode()
        raise ArgumentError(f"{reason}; all processes stop, nothing was spent") from cause

    def wait_for_all(self) -> None:
        """Wait until every rank has started, but not for one that has died.

        Raises:
            ArgumentError: some did not start.
        """
        self._store.set(f"here/{self.rank}", "")
        everybody = [f"here/{rank}" for rank in range(self.world_size)]
        last = time.monotonic() + _MEETING.total_seconds()
        while time.monotonic() < last and self._alive():
            if self._store.check(everybody):
                return
            time.sleep(0.05)
        raise ArgumentError(f"all {self.world_size} processes of a run must start, but some did not; nothing was spent")


ALONE = Ranks()
"""A single process."""


def digest(array: npt.NDArray[Any]) -> str:
    """Return a hash of an array, to compare between ranks."""
    state = hashlib.blake2b(f"{array.dtype} {array.shape}".encode(), digest_size=16)
    state.update(np.ascontiguousarray(array).data.cast("B"))
    return state.hexdigest()


class LocalRank(LightningEnvironment):
    """A rank among the processes that the first one has started on this machine."""

    def __init__(self, rank: int, world_size: int, port: int) -> None:
        super().__init__()
        self._global_rank, self._world_size, self._main_port = rank, world_size, port

    @property
    def creates_processes_externally(self) -> bool:
        """Lightning need not start any."""
        return True

    @property
    def main_address(self) -> str:
        """This machine."""
        return "127.0.0.1"

    def local_rank(self) -> int:
        """This rank: there is one machine."""
        return self._global_rank

    def node_rank(self) -> int:
        """There is one machine."""
        return 0


@contextlib.contextmanager
def launch(options: Mapping[str, Any], assist: Callable[[Ranks], None]) -> Iterator[Ranks]:
    """Yield this process's place among the ranks that the trainer's options ask for; disconnect afterwards.

    Args:
        options: for Lightning's Trainer: accelerator, devices, strategy, num_nodes.
        assist: called with its place in every process that is started here; it is pickled.

    Raises:
        ArgumentError: another number of processes than was started, or another rank that stops.
    """
    trainer = build_trainer(options)
    devices, nodes = trainer.num_devices, trainer.num_nodes
    environment = _started()
    if environment is not None and devices * nodes != environment.world_size():
        raise ArgumentError(
            f"trainer.devices times trainer.num_nodes must be the number of processes that were started, "
            f"{environment.world_size()}, got {devices} times {nodes}"
        )
    if devices * nodes == 1:
        yield Ranks()
    elif environment is not None:
        with _connected(Ranks(environment, _store_of(environment))) as ranks:
            yield ranks
    elif nodes > 1:
        raise ArgumentError(f"trainer.num_nodes must be 1 without torchrun or Slurm, got {nodes}; see docs/devices.md")
    else:
        with _helpers(devices, assist) as ranks:
            yield ranks


def _started() -> ClusterEnvironment | None:
    """Return what torchrun or Slurm says, if this is one of several processes that it has started."""
    environment: ClusterEnvironment | None = None
    if TorchElasticEnvironment.detect():
        environment = TorchElasticEnvironment()
    elif "SLURM_NTASKS" in os.environ and SLURMEnvironment.detect():
        try:
            environment = SLURMEnvironment(auto_requeue=False)
        except RuntimeError as error:
            raise ArgumentError(" ".join(str(error).split())) from error
    return environment if environment is not None and environment.world_size() > 1 else None


def _store_of(environment: ClusterEnvironment) -> Any:
    address = f"tcp://{environment.main_address}:{environment.main_port}"
    try:
        store, _, _ = next(distributed.rendezvous(address, environment.global_rank(), environment.world_size(), timeout=_MEETING))
    except RuntimeError as error:
        raise ArgumentError(f"the processes of a run must reach each other, but {address} could not be reached") from error
    return distributed.PrefixStore("teacher_student", store)


@contextlib.contextmanager
def _connected(ranks: Ranks, *, share_cores: bool = False) -> Iterator[Ranks]:
    """Connect to the other ranks, and disconnect at the end; tell them about failures in the block."""
    ranks.wait_for_all()
    distributed.init_process_group("gloo", store=ranks._store, timeout=_TRAINING, rank=ranks.rank, world_size=ranks.world_size)
    threads = torch.get_num_threads()
    if share_cores and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, threads // ranks.world_size))
    try:
        yield ranks
        distributed.barrier()
    except BaseException as error:
        ranks.fail(str(error) if isinstance(error, ArgumentError) else type(error).__name__)
        if isinstance(error, RuntimeError) and "gloo" in str(error):  # a connection that broke within Lightning
            ranks.stop(error)
        raise
    finally:
        torch.set_num_threads(threads)
        distributed.destroy_process_group()


@contextlib.contextmanager
def _helpers(count: int, assist: Callable[[Ranks], None]) -> Iterator[Ranks]:
    """Start `count` - 1 further processes on this machine; they end with the block."""
    store = distributed.TCPStore("127.0.0.1", 0, count, is_master=True, wait_for_workers=False, timeout=_MEETING)
    spawn = multiprocessing.get_context("spawn")
    places = [LocalRank(rank, count, store.port) for rank in range(count)]
    processes = [spawn.Process(target=_help, args=(assist, place), daemon=True) for place in places[1:]]
    try:
        try:
            for process in processes:
                process.start()
        except (AttributeError, TypeError, ValueError, OSError, ImportError) as error:
            raise ArgumentError(f"settings must be picklable for trainer.devices = {count}, but: {error}") from error
        here = Ranks(places[0], store, lambda: all(not process.exitcode for process in processes))
        with _connected(here, share_cores=True) as ranks:
            yield ranks
        for process in processes:
            process.join(timeout=60)
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
                process.join()


def _help(assist: Callable[[Ranks], None], place: LocalRank) -> None:
    """Run `assist` in a further process; the first one reports a wrong argument for all."""
    store = distributed.TCPStore(place.main_address, place.main_port, place.world_size(), is_master=False, timeout=_MEETING)
    try:
        with _connected(Ranks(place, store), share_cores=True) as ranks:
            assist(ranks)
    except ArgumentError:
        sys.exit(2)
