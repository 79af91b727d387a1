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
from safetensors.torch import load_file, save_file
from torch import Tensor

from teacher_student.arguments import ArgumentError
from teacher_student.teachers.chunk import TrainedChunk

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
        self.folder = Path(folder)
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
        draft = self._path(number).with_suffix(f".{os.getpid()}.part")
        save_file(tensors, draft)
        draft.replace(self._path(number))

    def get(self, number: int) -> TrainedChunk:
        """Read a chunk.

        Raises:
            ArgumentError: the file is missing or damaged.
        """
        try:
            tensors: dict[str, Tensor] = load_file(self._path(number))
        except (OSError, ValueError, RuntimeError) as error:
            raise ArgumentError(f"checkpoint_dir must hold whole chunks, cannot read {self._path(number).name}") from error
        except Exception as error:  # safetensors' own error class derives from Exception alone
            if type(error).__name__ != "SafetensorError":
                raise
            raise ArgumentError(f"checkpoint_dir must hold whole chunks, cannot read {self._path(number).name}") from error
        stack = {name.removeprefix("teacher."): tensor for name, tensor in tensors.items() if name.startswith("teacher.")}
        return TrainedChunk(stack, tensors["abstaining"].bool(), tensors["losses"])

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
        if manifest.get("format") != _FORMAT:
            raise ArgumentError(f"checkpoint_dir must hold teachers of format {_FORMAT}, got {manifest.get('format')!r}")
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


def versions() -> dict[str, str]:
    """Versions that can change a teacher's last bit."""
    return {"torch": str(torch.__version__)}
