"""Training of networks as teachers: `train_teachers` takes private records, `load_teachers` a folder of trained teachers."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from teacher_student import arguments
from teacher_student.arguments import ArgumentError
from teacher_student.teachers.chunk import rehearse
from teacher_student.teachers.engines import Network, build_engine, chunk_size, initial_stack, num_classes_of
from teacher_student.teachers.module import OneBatchPerEpoch, TeacherEnsemble
from teacher_student.teachers.records import ChunkRecords, ShardedRecords
from teacher_student.teachers.settings import TrainingSettings
from teacher_student.teachers.store import FolderStore, TeacherStore
from teacher_student.teachers.trainer import (
    Report,
    build_trainer,
    device_of,
    first_rank_first,
    one_thread_if_small,
    silence_lightning,
)

_MOST_TEACHERS = 10**7


def train_teachers(
    features: object,
    labels: object,
    order: object,
    offsets: object,
    network: Network,
    settings: TrainingSettings | None = None,
    *,
    weights: object = None,
    master_seed: int = 0,
    trainer_options: Mapping[str, Any] | None = None,
    checkpoint_dir: str | Path | None = None,
    logger: Any = None,
    report: Report | None = None,
    save_seconds: float = 60.0,
) -> TeacherEnsemble:
    """Train one teacher on each shard.

    Shard j holds the records `order[offsets[j]:offsets[j + 1]]`. No value crosses shards: altering shard j's records, labels or
    size leaves every other teacher bit-identical.

    Args:
        features: (n, ...) floating point, or uint8 (read as value / 255). Private.
        labels: (n,) classes. Private.
        order: (n,) record positions, shard after shard.
        offsets: (num_teachers + 1,), rising from 0.
        network: builds one teacher's network; its random start is drawn from the teacher's seed.
        settings: public constants of the training.
        weights: (n,) factors of the records' losses, each from its own record and public values alone; None for 1 each. Private.
        master_seed: every teacher's seed is a keyed hash of it and the shard's index.
        trainer_options: for Lightning's Trainer: accelerator, devices, strategy, num_nodes, callbacks.
        checkpoint_dir: keeps finished chunks, and continues after those of the same training that it holds. Private.
        logger: Lightning logger for private curves, or None.
        report: called with (teachers done, teachers in all, seconds left) after every chunk; None for a progress bar.
        save_seconds: how often an unfinished chunk is kept in `checkpoint_dir`.

    Returns:
        The ensemble, on the CPU or in `checkpoint_dir`.

    Raises:
        ArgumentError: bad records, settings or options, or a checkpoint of another training.
    """
    settings = settings or TrainingSettings()
    records = ShardedRecords.of(features, labels, order, offsets, weights)
    seed = arguments.positive_integer("master_seed", master_seed, minimum=0)
    save_seconds = arguments.finite_number("save_seconds", save_seconds)
    store = TeacherStore() if checkpoint_dir is None else FolderStore(checkpoint_dir)
    trainer = build_trainer(trainer_options, logger=logger, report=report)

    def build(settings: TrainingSettings) -> TeacherEnsemble:
        sizes = _rehearsed(network, settings, tuple(records.features.shape[1:]), records.num_teachers, trainer)
        return TeacherEnsemble(network, settings, master_seed=seed, store=store, save_seconds=save_seconds, **sizes)

    ensemble = build(settings)
    if isinstance(store, FolderStore):
        with first_rank_first():
            kept = store.begin(_manifest(ensemble, records))
        if (kept["engine"], kept["chunk"]) != (ensemble.engine.name, ensemble.chunk):
            ensemble = build(dataclasses.replace(settings, engine=kept["engine"], chunk=kept["chunk"]))
    _fit(ensemble, records, trainer)
    return ensemble


def check_training(
    network: Network,
    settings: TrainingSettings,
    *,
    record_shape: tuple[int, ...],
    num_teachers: int,
    trainer_options: Mapping[str, Any] | None = None,
) -> float:
    """Refuse what `train_teachers` would refuse, before any record is read or folder made.

    Returns:
        Seconds that the training takes, roughly: from two steps on made-up records, on this device.

    Raises:
        ArgumentError: settings or options that couple teachers, or under which the network cannot be trained.
    """
    arguments.positive_integer("num_teachers", num_teachers, maximum=_MOST_TEACHERS)
    shape = tuple(
        arguments.positive_integer("record_shape", size, maximum=_MOST_TEACHERS)
        for size in arguments.listed("record_shape", record_shape)
    )
    trainer = build_trainer(trainer_options)
    engine, chunk = itemgetter("engine", "chunk")(_rehearsed(network, settings, shape, num_teachers, trainer))
    began, worked = time.perf_counter(), time.process_time()
    steps = rehearse(engine, torch.zeros(shape, dtype=settings.dtype), device_of(trainer), chunk)  # the first time was slow
    seconds = time.perf_counter() - began
    if device_of(trainer).type == "cpu":  # of two steps on a busy machine, the clock says little
        seconds = min(seconds, time.process_time() - worked)
    chunks = -(-num_teachers // (chunk * trainer.world_size))
    return seconds / steps * settings.steps * chunks


def _rehearsed(
    network: Network, settings: TrainingSettings, record_shape: tuple[int, ...], num_teachers: int, trainer: Any
) -> dict[str, Any]:
    """Return an engine that was tried on made-up records, and the ensemble's sizes, by the names of `TeacherEnsemble`."""
    settings.decays(num_teachers)
    device = device_of(trainer)
    try:
        example = torch.zeros((2, *record_shape), dtype=settings.dtype)
    except RuntimeError as error:
        raise ArgumentError(f"record_shape must be that of a record that fits into memory, got {record_shape}") from error
    num_classes = num_classes_of(network, example)
    engine = build_engine(network, settings, example, device)
    most = -(-num_teachers // (1 if device.type == "cpu" else trainer.world_size))
    chunk = chunk_size(engine, settings, most, example[0], device)
    rehearse(engine, example[0], device, chunk)
    return {"engine": engine, "chunk": chunk, "num_classes": num_classes, "num_teachers": num_teachers}


def _manifest(ensemble: TeacherEnsemble, records: ShardedRecords) -> dict[str, Any]:
    """Return what identifies a training, JSON-able. Private: it holds a hash of the records."""
    first = initial_stack(ensemble.network, ensemble.settings, ensemble.master_seed, (0,))
    start = hashlib.blake2b(b"".join(first[name].numpy().tobytes() for name in sorted(first)), digest_size=16).hexdigest()
    return {
        "num_teachers": ensemble.num_teachers,
        "num_classes": ensemble.num_classes,
        "master_seed": ensemble.master_seed,
        "settings": ensemble.settings.to_dict(),
        "network": str(ensemble.network()),
        "engine": ensemble.engine.name,
        "chunk": ensemble.chunk,
        "record_shape": list(records.features.shape[1:]),
        "start": start,
        "records": records.fingerprint(),
        "versions": {"torch": str(torch.__version__)},  # it can change a teacher's last bit
    }


def _fit(ensemble: TeacherEnsemble, records: ShardedRecords, trainer: Any) -> None:
    """Train what is not finished. Several ranks take the same number of epochs, some of them without work."""
    ranks, finished = trainer.world_size, ensemble.store.finished()
    pending = [number for number in ensemble.chunks_of_rank(trainer.global_rank, ranks) if number not in finished]
    if ranks > 1:
        pending += [-1] * (-(-ensemble.num_chunks // ranks) - len(pending))
    if pending:
        trainer.fit_loop.max_epochs = len(pending)
        _keep_freed_memory()
        with silence_lightning(), one_thread_if_small(ensemble.engine.network):
            trainer.fit(ensemble, train_dataloaders=OneBatchPerEpoch(_chunks(ensemble, records, pending)))


def _chunks(
    ensemble: TeacherEnsemble, records: ShardedRecords, numbers: Sequence[int]
) -> Iterator[tuple[int, ChunkRecords | None]]:
    """Yield the records of chunks; None for a negative number, which stands for an epoch without work."""
    for number in numbers:
        shards = ensemble.shards_of(number)
        yield number, None if number < 0 else records.chunk(shards.start, shards.stop, ensemble.num_classes)


def _keep_freed_memory() -> None:
    """Let glibc keep what a step frees for the next one: returning it and faulting it in again costs image networks a fifth.

    A freed block of nearly 32 MiB raises its thresholds (mallopt(3), M_MMAP_THRESHOLD); it is never touched, so it takes no
    memory. Other allocators are not affected.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def load_teachers(checkpoint_dir: str | Path, network: Network) -> TeacherEnsemble:
    """Load an ensemble that `train_teachers` has kept, to vote on a CPU or any device.

    Args:
        checkpoint_dir: the folder.
        network: the same network as in training.

    Raises:
        ArgumentError: no such ensemble, an unfinished one, or another network.
    """
    store = FolderStore(checkpoint_dir)
    manifest = store.read_manifest()
    if manifest is None:
        raise ArgumentError(f"checkpoint_dir must hold trained teachers, got {checkpoint_dir}")
    if manifest["network"] != str(network()):
        raise ArgumentError("network must be the one that the teachers were trained with, got another")
    settings = dataclasses.replace(TrainingSettings.from_dict(manifest["settings"]), engine=manifest["engine"])
    example = torch.zeros((2, *manifest["record_shape"]), dtype=settings.dtype)
    sizes = {name: manifest[name] for name in ("num_teachers", "num_classes", "master_seed", "chunk")}
    engine = build_engine(network, settings, example, torch.device("cpu"))
    ensemble = TeacherEnsemble(network, settings, engine=engine, store=store, **sizes)
    if missing := set(range(ensemble.num_chunks)) - store.finished():
        raise ArgumentError(
            f"checkpoint_dir must hold all chunks of teachers, {len(missing)} of {ensemble.num_chunks} are missing"
        )
    return ensemble
