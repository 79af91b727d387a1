"""Where finished teachers are kept: in memory, or in a folder of safetensors files and one JSON manifest. No pickle.

A folder holds one file for each finished chunk, written whole and then renamed, so a killed training leaves only whole chunks
and goes on after them. Everything in it is private.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from teacher_student.arguments import ArgumentError, file_path
from teacher_student.teachers.chunk import TrainedChunk, UnfinishedChunk

_MANIFEST = "manifest.json"
_FORMAT = 1


class TeacherStore(ABC):
    """Finished chunks by number."""

    @abstractmethod
    def finished(self) -> set[int]:
        """Numbers of the chunks that are kept."""

    @abstractmethod
    def put(self, number: int, chunk: TrainedChunk) -> None:
        """Keep a finished chunk."""

    @abstractmethod
    def get(self, number: int) -> TrainedChunk:
        """Return a finished chunk."""

    def put_unfinished(self, number: int, chunk: UnfinishedChunk) -> None:  # noqa: B027  a store in memory has no use for it
        """Keep a chunk between two steps, if the store outlives the process."""

    def get_unfinished(self, number: int) -> UnfinishedChunk | None:  # noqa: ARG002
        """Return an unfinished chunk, if there is one."""
        return None


class MemoryStore(TeacherStore):
    """All teachers in memory."""

    def __init__(self) -> None:
        self._chunks: dict[int, TrainedChunk] = {}

    def finished(self) -> set[int]:
        """See `TeacherStore.finished`."""
        return set(self._chunks)

    def put(self, number: int, chunk: TrainedChunk) -> None:
        """See `TeacherStore.put`."""
        self._chunks[number] = chunk

    def get(self, number: int) -> TrainedChunk:
        """See `TeacherStore.get`."""
        if number not in self._chunks:
            raise ArgumentError("checkpoint_dir must be set to read teachers that another process trained")
        return self._chunks[number]


class FolderStore(TeacherStore):
    """Teachers on disk, one chunk in memory at a time.

    Args:
        folder: created with mode 0700 if it is missing.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = file_path("checkpoint_dir", folder)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"chunk_{number:06d}.safetensors"

    def finished(self) -> set[int]:
        """See `TeacherStore.finished`."""
        return {int(path.stem.removeprefix("chunk_")) for path in self.folder.glob("chunk_*.safetensors")}

    def put(self, number: int, chunk: TrainedChunk) -> None:
        """Write the chunk beside its place, then rename it."""
        tensors = {f"teacher.{name}": tensor.contiguous() for name, tensor in chunk.stack.items()}
        tensors |= {"abstaining": chunk.abstaining, "losses": chunk.losses}
        self._write(self._path(number), tensors)
        self._unfinished(number).unlink(missing_ok=True)

    @staticmethod
    def _write(path: Path, tensors: dict[str, Tensor]) -> None:
        draft = path.with_suffix(f".{os.getpid()}.part")
        save_file(tensors, draft)
        draft.replace(path)

    def _unfinished(self, number: int) -> Path:
        return self.folder / f"unfinished_{number:06d}.safetensors"

    def put_unfinished(self, number: int, chunk: UnfinishedChunk) -> None:
        """See `TeacherStore.put_unfinished`."""
        tensors = {f"teacher.{name}": tensor.cpu().contiguous() for name, tensor in chunk.stack.items()}
        tensors |= {f"optimizer.{place}.{name}": value.cpu().contiguous() for (place, name), value in chunk.optimizer.items()}
        self._write(self._unfinished(number), {**tensors, "step": torch.tensor(chunk.step)})

    def get_unfinished(self, number: int) -> UnfinishedChunk | None:
        """See `TeacherStore.get_unfinished`."""
        if not self._unfinished(number).exists():
            return None
        tensors = _read(self._unfinished(number))
        parts = {tuple(name.split(".", 2)[1:]): tensor for name, tensor in tensors.items() if name.startswith("optimizer.")}
        optimizer = {(int(place), name): tensor for (place, name), tensor in parts.items()}
        return UnfinishedChunk(int(tensors["step"]), _stack(tensors), optimizer)

    def get(self, number: int) -> TrainedChunk:
        """Read a chunk.

        Raises:
            ArgumentError: the file is missing or damaged.
        """
        tensors = _read(self._path(number))
        return TrainedChunk(_stack(tensors), tensors["abstaining"].bool(), tensors["losses"])

    def read_manifest(self) -> dict[str, Any] | None:
        """Return the manifest, or None where training has not begun.

        Raises:
            ArgumentError: it cannot be read.
        """
        path = self.folder / _MANIFEST
        if not path.exists():
            return None
        try:
            manifest: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ArgumentError(f"checkpoint_dir must hold a readable {_MANIFEST}; remove the folder to start again") from error
        if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
            raise ArgumentError(f"checkpoint_dir must hold teachers of format {_FORMAT}, got {manifest!r}")
        return manifest

    def begin(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest, or check it against the one of an interrupted training, whose engine and chunk then hold.

        Raises:
            ArgumentError: the folder holds teachers of other data, settings or seed.
        """
        kept = self.read_manifest()
        if kept is None:
            draft = self.folder / f"{_MANIFEST}.{os.getpid()}.part"
            draft.write_text(json.dumps({"format": _FORMAT, **manifest}, indent=1))
            draft.replace(self.folder / _MANIFEST)
            return dict(manifest)
        for name, value in manifest.items():
            if name not in ("engine", "chunk", "versions") and kept.get(name) != value:
                raise ArgumentError(f"checkpoint_dir must be empty or hold the same training, its {name} differs")
        return kept


def _stack(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("teacher."): tensor for name, tensor in tensors.items() if name.startswith("teacher.")}


def _read(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ArgumentError(f"checkpoint_dir must hold whole chunks, cannot read {path.name}; remove that file") from error
    return tensors


def versions() -> dict[str, str]:
    """Versions that can change a teacher's last bit."""
    return {"torch": str(torch.__version__)}
