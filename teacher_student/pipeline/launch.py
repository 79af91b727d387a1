"""Bring the ranks of a run together: those that torchrun or Slurm has started, or processes that the first one starts itself."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
from lightning.fabric.plugins.environments import ClusterEnvironment, SLURMEnvironment, TorchElasticEnvironment
from torch import distributed

from teacher_student.arguments import ArgumentError
from teacher_student.pipeline.ranks import Ranks
from teacher_student.teachers.trainer import build_trainer

_MEETING = timedelta(minutes=10)  # all processes must have come together by then
_TRAINING = timedelta(days=30)  # one rank may train that long after another has finished

Assist = Callable[[Ranks], None]
"""What another rank than the first does; it is pickled, for processes that are started here."""


class Place(ClusterEnvironment):
    """A rank among the processes that the first one has started on this machine."""

    def __init__(self, rank: int, world_size: int, port: int) -> None:
        self._rank, self._world_size, self._port = rank, world_size, port

    @property
    def creates_processes_externally(self) -> bool:
        """Lightning need not start any."""
        return True

    @property
    def main_address(self) -> str:
        """This machine."""
        return "127.0.0.1"

    @property
    def main_port(self) -> int:
        """Of the first rank's store."""
        return self._port

    @staticmethod
    def detect() -> bool:
        """Never found in the environment."""
        return False

    def world_size(self) -> int:
        """Number of ranks."""
        return self._world_size

    def set_world_size(self, size: int) -> None:
        """It is known."""

    def global_rank(self) -> int:
        """This rank."""
        return self._rank

    def set_global_rank(self, rank: int) -> None:
        """It is known."""

    def local_rank(self) -> int:
        """This rank: there is one machine."""
        return self._rank

    def node_rank(self) -> int:
        """There is one machine."""
        return 0


@contextlib.contextmanager
def together(options: Mapping[str, Any], assist: Assist) -> Iterator[Ranks]:
    """Yield this process's place among the ranks that the trainer's options ask for, and part from the others afterwards.

    Args:
        options: for Lightning's Trainer: accelerator, devices, strategy, num_nodes.
        assist: called with its place in every process that is started here.

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
        with _connected(environment, _store_of(environment)) as ranks:
            yield ranks
    elif nodes > 1:
        raise ArgumentError(f"trainer.num_nodes must be 1 without torchrun or Slurm, got {nodes}; see docs/devices.md")
    else:
        with _helpers(devices, assist) as ranks:
            yield ranks


def _started() -> ClusterEnvironment | None:
    """What torchrun or Slurm says, if this process is one of several of theirs."""
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
def _connected(environment: ClusterEnvironment, store: Any, alive: Callable[[], bool] = lambda: True) -> Iterator[Ranks]:
    """Meet the other ranks, hand over, and part; what goes wrong here is told to the others."""
    rank, world_size = environment.global_rank(), environment.world_size()
    ranks = Ranks(rank, world_size, environment, store, alive)
    _wait_for_all(store, ranks, alive)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=_TRAINING)
    try:
        with _fair_share_of_threads(environment):
            yield ranks
        distributed.barrier()
    except BaseException as error:
        ranks.fail(str(error) if isinstance(error, ArgumentError) else type(error).__name__)
        if isinstance(error, RuntimeError) and "gloo" in str(error):  # a connection that broke within Lightning
            ranks.stop(error)
        raise
    finally:
        distributed.destroy_process_group()


def _wait_for_all(store: Any, ranks: Ranks, alive: Callable[[], bool]) -> None:
    """Wait until every rank is there; not for one that has died on its way."""
    store.set(f"here/{ranks.rank}", "")
    everybody = [f"here/{rank}" for rank in range(ranks.world_size)]
    last = time.monotonic() + _MEETING.total_seconds()
    while time.monotonic() < last and alive():
        if store.check(everybody):
            return
        time.sleep(0.05)
    raise ArgumentError(f"all {ranks.world_size} processes of a run must start, but some did not; nothing was spent")


@contextlib.contextmanager
def _fair_share_of_threads(environment: ClusterEnvironment) -> Iterator[None]:
    """Processes started here share the cores, as long as nobody has said otherwise."""
    before = torch.get_num_threads()
    if isinstance(environment, Place) and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, before // environment.world_size()))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _helpers(count: int, assist: Assist) -> Iterator[Ranks]:
    """Start `count` - 1 further processes on this machine; they end with the block."""
    store = distributed.TCPStore("127.0.0.1", 0, count, is_master=True, wait_for_workers=False, timeout=_MEETING)
    spawn = multiprocessing.get_context("spawn")
    places = [Place(rank, count, store.port) for rank in range(count)]
    processes = [spawn.Process(target=_help, args=(assist, place), daemon=True) for place in places[1:]]
    try:
        try:
            for process in processes:
                process.start()
        except (AttributeError, TypeError, ValueError, OSError, ImportError) as error:
            raise ArgumentError(f"settings must be picklable for trainer.devices = {count}, but: {error}") from error
        with _connected(places[0], store, lambda: all(not process.exitcode for process in processes)) as ranks:
            yield ranks
        for process in processes:
            process.join(timeout=60)
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
                process.join()


def _help(assist: Assist, place: Place) -> None:
    """What a further process does; the first one speaks for it when an argument is wrong."""
    store = distributed.TCPStore(place.main_address, place.main_port, place.world_size(), is_master=False, timeout=_MEETING)
    try:
        with _connected(place, store) as ranks:
            assist(ranks)
    except ArgumentError:
        sys.exit(2)
