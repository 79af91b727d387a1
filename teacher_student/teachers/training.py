"""The teachers' two doors: `train_teachers` takes private records, `predict_votes` takes public points."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teacher_student import arguments
from teacher_student.arguments import ArgumentError
from teacher_student.teachers.chunk import as_numbers, rehearse, untrained
from teacher_student.teachers.engines import Engine, Network, build_engine, chunk_size, initial_stack
from teacher_student.teachers.module import ChunkQueue, PointBlock, TeacherEnsemble
from teacher_student.teachers.progress import Report
from teacher_student.teachers.records import ShardedRecords, _tensor
from teacher_student.teachers.settings import TrainingSettings
from teacher_student.teachers.store import FolderStore, MemoryStore, TeacherStore, versions
from teacher_student.teachers.strategy import first_rank_first, gathered_votes
from teacher_student.teachers.trainer import build_trainer, device_of, quiet

_BLOCK = 16_384
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
        weights: (n,) what each record's loss counts, each from its own record and public values alone; None for 1 each. Private.
        master_seed: every teacher's seed is a keyed hash of it and the shard's index.
        trainer_options: for Lightning's Trainer: accelerator, devices, strategy, num_nodes, callbacks.
        checkpoint_dir: keeps finished chunks there, and goes on after them if it holds some of the same training. It is private.
        logger: Lightning logger for private curves, or None.
        report: called with (teachers done, teachers in all, seconds left) after every chunk; None for a progress bar.
        save_seconds: a chunk that takes longer is kept in `checkpoint_dir` between two steps this often.

    Returns:
        The ensemble, on the CPU or in `checkpoint_dir`.

    Raises:
        ArgumentError: bad records, settings or options, or a checkpoint of another training.
    """
    settings = settings or TrainingSettings()
    records = ShardedRecords.of(features, labels, order, offsets, weights)
    seed = arguments.positive_integer("master_seed", master_seed, minimum=0)
    store: TeacherStore = MemoryStore() if checkpoint_dir is None else FolderStore(checkpoint_dir)
    trainer = build_trainer(trainer_options, logger=logger, report=report)
    ensemble = _build(network, settings, records, seed, trainer, store)
    if isinstance(store, FolderStore):
        with first_rank_first():
            kept = store.begin(_manifest(ensemble, records))
        if (kept["engine"], kept["chunk"]) != (ensemble.engine.name, ensemble.chunk):
            settings = dataclasses.replace(settings, engine=kept["engine"], chunk=kept["chunk"])
            ensemble = _build(network, settings, records, seed, trainer, store)
    ensemble.save_seconds = arguments.finite_number("save_seconds", save_seconds)
    _fit(ensemble, records, trainer)
    return ensemble


def check_training(
    network: Network,
    settings: TrainingSettings,
    *,
    record_shape: tuple[int, ...],
    num_teachers: int,
    trainer_options: Mapping[str, Any] | None = None,
) -> None:
    """Refuse what `train_teachers` would refuse, before any record is read or folder made.

    Args:
        network: builds one teacher's network.
        settings: public constants of the training.
        record_shape: of one record.
        num_teachers: number of shards.
        trainer_options: for Lightning's Trainer.

    Raises:
        ArgumentError: settings or options that couple teachers, or under which the network cannot be trained.
    """
    settings.decays(arguments.positive_integer("num_teachers", num_teachers, maximum=_MOST_TEACHERS))
    shape = tuple(
        arguments.positive_integer("record_shape", size, maximum=_MOST_TEACHERS)
        for size in arguments.listed("record_shape", record_shape)
    )
    _rehearsed(network, settings, shape, num_teachers, build_trainer(trainer_options))


def _rehearsed(
    network: Network, settings: TrainingSettings, record_shape: tuple[int, ...], num_teachers: int, trainer: Any
) -> tuple[Engine, int, int]:
    """Return an engine that was tried on made-up records, the number of teachers in a chunk, and of classes."""
    device = device_of(trainer)
    try:
        example = torch.zeros((2, *record_shape), dtype=settings.dtype)
    except RuntimeError as error:
        raise ArgumentError(f"record_shape must be that of a record that fits into memory, got {record_shape}") from error
    num_classes = _num_classes(network, example)
    engine = build_engine(network, settings, example, device)
    most = -(-num_teachers // (1 if device.type == "cpu" else trainer.world_size))
    chunk = chunk_size(engine, settings, most, example[0], device)
    rehearse(engine, example[0], device, chunk)
    return engine, chunk, num_classes


def _build(
    network: Network, settings: TrainingSettings, records: ShardedRecords, seed: int, trainer: Any, store: TeacherStore
) -> TeacherEnsemble:
    settings.decays(records.num_teachers)
    shape = tuple(records.features.shape[1:])
    engine, chunk, num_classes = _rehearsed(network, settings, shape, records.num_teachers, trainer)
    return TeacherEnsemble(
        network,
        settings,
        num_teachers=records.num_teachers,
        num_classes=num_classes,
        master_seed=seed,
        engine=engine,
        chunk=chunk,
        store=store,
    )


def _manifest(ensemble: TeacherEnsemble, records: ShardedRecords) -> dict[str, Any]:
    shape = list(records.features.shape[1:])
    first = initial_stack(ensemble.network, ensemble.settings, ensemble.master_seed, (0,))
    start = hashlib.blake2b(b"".join(first[name].numpy().tobytes() for name in sorted(first)), digest_size=16).hexdigest()
    return {
        **ensemble.manifest(),
        "record_shape": shape,
        "start": start,
        "records": records.fingerprint(),
        "versions": versions(),
    }


def check_points(ensemble: TeacherEnsemble, public_features: object) -> Tensor:
    """Return public points as a tensor.

    An untrained network scores all of them first: what fails on public points alone is refused here, and what fails later
    follows from a teacher's records and makes it abstain.

    Raises:
        ArgumentError: no points, or such that the teachers' network does not take.
    """
    points = _tensor("public_features", public_features)
    if points.ndim < 2 or points.is_complex():
        raise ArgumentError(f"public_features must be (points, ...) numbers, got {points.dtype} of shape {tuple(points.shape)}")
    with torch.random.fork_rng(devices=[]):
        _num_classes(ensemble.network, torch.zeros((2, *points.shape[1:]), dtype=ensemble.settings.dtype))
        try:
            for part in ensemble.passes(points, 1):
                ensemble.engine.scores(untrained(ensemble.engine, 1), as_numbers(part, ensemble.settings.dtype).clone())
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ArgumentError(f"public_features must be points that the network takes, but it fails: {reason}") from error
    return points


def _num_classes(network: Network, example: Tensor) -> int:
    """Width of the network's scores, tried on zeros: the class list never comes from the records."""
    module = network()
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(f"network must be a callable that returns an nn.Module, got {type(module).__name__}")
    try:
        with torch.no_grad():
            scores = module.to(example.dtype).eval()(example)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(f"network must take records of shape {tuple(example.shape[1:])}, but fails: {reason}") from error
    if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != len(example):
        raise ArgumentError("network must return class scores of shape (batch, num_classes)")
    return int(scores.shape[1])


def _fit(ensemble: TeacherEnsemble, records: ShardedRecords, trainer: Any) -> None:
    """Train what is not finished. Several ranks take the same number of epochs, some of them without work."""
    ranks, finished = trainer.world_size, ensemble.store.finished()
    pending = [number for number in ensemble.chunks_of_rank(trainer.global_rank, ranks) if number not in finished]
    if ranks > 1:
        pending += [-1] * (-(-ensemble.num_chunks // ranks) - len(pending))
    if pending:
        trainer.fit_loop.max_epochs = len(pending)
        _keep_freed_memory()
        queue = ChunkQueue(records, pending, ensemble.chunk, ensemble.num_classes)
        with quiet():
            trainer.fit(ensemble, train_dataloaders=queue)


def _keep_freed_memory() -> None:
    """Let glibc keep what a step frees for the next one: to return it and fault it in again costs image networks a fifth.

    A freed block of nearly 32 MiB raises its thresholds (mallopt(3), M_MMAP_THRESHOLD); it is never touched, so it takes no
    memory. Other allocators are not moved by it.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def predict_votes(
    ensemble: TeacherEnsemble,
    public_features: object,
    *,
    block: int = _BLOCK,
    trainer_options: Mapping[str, Any] | None = None,
    joined: bool = True,
) -> Iterator[npt.NDArray[np.signedinteger]]:
    """Yield the teachers' votes on public points, a block at a time, through Lightning's predict loop.

    Args:
        ensemble: trained teachers.
        public_features: (points, ...), like the teachers' records.
        block: points in a block.
        trainer_options: for Lightning's Trainer.
        joined: several ranks put their votes side by side; if not, each yields its own teachers' votes, -1 for all others.

    Yields:
        (points in the block, num_teachers), of the type of `labels.vote_type`; -1 where a teacher abstains.

    Raises:
        ArgumentError: bad features or options.
    """
    points = check_points(ensemble, public_features)
    size = min(arguments.positive_integer("block", block), max(1, len(points)))
    if len(points) == 0:
        return
    trainer = build_trainer(trainer_options)
    for part in points.split(size):
        with quiet():
            votes: Any = trainer.predict(ensemble, dataloaders=PointBlock(part))
        yield (gathered_votes(votes[0], device_of(trainer)) if joined else votes[0]).numpy()


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
