"""Where finished teachers are kept: in memory, or in a folder of safetensors files and one JSON manifest. No pickle.

A folder holds one file for each finished chunk, written whole and then renamed, so a killed training leaves only whole chunks
and continues after them. Everything in it is private.
"""

from __future__ import annotations

import json
import os
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


class TeacherStore:
    """Finished chunks by number, in memory."""

    def __init__(self) -> None:
        self._chunks: dict[int, TrainedChunk] = {}

    def finished(self) -> set[int]:
        """Return the numbers of the chunks that are kept."""
        return set(self._chunks)

    def put(self, number: int, chunk: TrainedChunk) -> None:
        """Keep a finished chunk."""
        self._chunks[number] = chunk

    def get(self, number: int) -> TrainedChunk:
        """Return a finished chunk.

        Raises:
            ArgumentError: it is missing or damaged.
        """
        if number not in self._chunks:
            raise ArgumentError("checkpoint_dir must be set to read teachers that another process trained")
        return self._chunks[number]

    def put_unfinished(self, number: int, chunk: UnfinishedChunk) -> None:
        """Keep a chunk between two steps, if the store outlives the process."""

    def get_unfinished(self, number: int) -> UnfinishedChunk | None:  # noqa: ARG002
        """Return an unfinished chunk, if there is one."""
        return None


class FolderStore(TeacherStore):
    """Teachers on disk, one chunk in memory at a time.

    Args:
        folder: created with mode 0700 if it is missing.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = file_path("checkpoint_dir", folder)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _path(self, number: int, kind: str = "chunk") -> Path:
        return self.folder / f"{kind}_{number:06d}.safetensors"

    def finished(self) -> set[int]:
        """See `TeacherStore.finished`."""
        return {int(path.stem.removeprefix("chunk_")) for path in self.folder.glob("chunk_*.safetensors")}

    def put(self, number: int, chunk: TrainedChunk) -> None:
        """See `TeacherStore.put`."""
        self._write(self._path(number), chunk.stack, {"abstaining": chunk.abstaining, "losses": chunk.losses})
        self._path(number, "unfinished").unlink(missing_ok=True)

    def get(self, number: int) -> TrainedChunk:
        """See `TeacherStore.get`."""
        stack, others = self._read(self._path(number))
        return TrainedChunk(stack, others["abstaining"].bool(), others["losses"])

    def put_unfinished(self, number: int, chunk: UnfinishedChunk) -> None:
        """See `TeacherStore.put_unfinished`."""
        optimizer = {f"optimizer.{place}.{name}": value for (place, name), value in chunk.optimizer.items()}
        self._write(self._path(number, "unfinished"), chunk.stack, {**optimizer, "step": torch.tensor(chunk.step)})

    def get_unfinished(self, number: int) -> UnfinishedChunk | None:
        """See `TeacherStore.get_unfinished`."""
        path = self._path(number, "unfinished")
        if not path.exists():
            return None
        stack, others = self._read(path)
        step, optimizer = int(others.pop("step")), {}
        for key, value in others.items():
            _, place, name = key.split(".", 2)
            optimizer[int(place), name] = value
        return UnfinishedChunk(step, stack, optimizer)

    @staticmethod
    def _write(path: Path, stack: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> None:
        """Write a file beside its place, then rename it."""
        tensors = {**{f"teacher.{name}": tensor for name, tensor in stack.items()}, **others}
        draft = path.with_suffix(f".{os.getpid()}.part")
        save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, draft)
        draft.replace(path)

    @staticmethod
    def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the stack of a file, and its other tensors."""
        try:
            tensors: dict[str, Tensor] = load_file(path)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise ArgumentError(f"checkpoint_dir must hold whole chunks, cannot read {path.name}; remove that file") from error
        names = {name: name.removeprefix("teacher.") for name in tensors if name.startswith("teacher.")}
        return {names[key]: tensors[key] for key in names}, {key: tensors[key] for key in tensors if key not in names}

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
        """Write the manifest, or check it against that of an interrupted training, whose engine and chunk are then kept.

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
