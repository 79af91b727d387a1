"""Your own images: one folder for each class, and a folder of public images without labels.

    private/cat/1.png  private/cat/2.png  private/dog/7.jpg      public/anything.png      evaluation/cat/9.png

The id of an image is its path below the private folder ("cat/1.png"), which stays when other images go, or with `ids="name"` its
path below the class folder ("1.png"), which does not change with the label, as `replace_one` and `label_only` demand; images of
one name in several classes share a teacher then. The class list is public: given, or the folder names of the public evaluation
set. Every image is brought to one public size and mode by itself. A private file that is no readable image is no record: it is
left out, and nothing is said about it. A public one is an error. There may be no private image.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, choice, file_path, listed, positive_integer
from teacher_student.data.dataset import PrivateDataset, evaluation_is_public
from teacher_student.data.encoded import encode
from teacher_student.data.projected import project
from teacher_student.data.splits import public_split
from teacher_student.data.vision import scale_images

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"})
Pixels = npt.NDArray[np.uint8]


def load_image_folder(
    private: str | Path,
    public: str | Path | None = None,
    evaluation: str | Path | None = None,
    *,
    size: int = 32,
    colour: bool = True,
    class_names: Sequence[str] | None = None,
    ids: str = "path",
    label_private: int | None = None,
    split_seed: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    flatten: bool = False,
    encoder: Any = None,
    layer: str | None = None,
    components: int | None = None,
    whiten: float = 1.0,
    student_columns: bool = False,
    evaluation_public: bool | None = None,
    name: str | None = None,
) -> PrivateDataset:
    """Return images from folders.

    Args:
        private: folder with one folder of images for each class.
        public: folder of images, searched in depth; folder names in it say nothing. Queries are in the order of the paths.
        evaluation: labelled as `private` is, or None.
        size: height and width that every image is resized to; public.
        colour: three channels, or one grey channel.
        class_names: public class list in tie order; None takes the sorted folder names of the public evaluation set.
        ids: "path" or "name".
        label_private: instead of `public`: how many training images, stripped of their labels, are queried; needs ids="name".
        split_seed: public; chooses the queried images in label-private mode.
        mean: public constant subtracted from the values in [0, 1].
        std: public constant that divides them.
        flatten: return (n, values) instead of (n, channels, size, size).
        encoder: a frozen network to see the images through (see `encode`), or None.
        layer: with an encoder: see `encode`.
        components: principal components of the public images as features instead (see `project`), or None.
        whiten: with components: see `project`.
        student_columns: with components: only the teachers see them.
        evaluation_public: whether figures on the evaluation set may be published; must be said where there is one.
        name: for reports; None takes the folder's name.

    Raises:
        ArgumentError: a folder that is absent, a public one that is part of the private one, holds no image, or a damaged one.
    """
    check_folders(private, public, evaluation, class_names, label_private, evaluation_public)
    evaluation_public = evaluation_is_public(evaluation, evaluation_public)
    queries: list[Pixels] = []
    side, names_only = positive_integer("size", size), choice("ids", ids, ("path", "name")) == "name"
    top = _folder("private", private)
    names = _class_names(class_names, evaluation if evaluation_public else None)
    with _silence():
        images, labels, paths = _labelled("private", top, names, side, colour)
    if names_only:
        paths = [path.split("/", 1)[1] for path in paths]
        # In the order of the classes a changed label would move other records.
        order = sorted(range(len(paths)), key=lambda place: (paths[place], images[place].tobytes()))
        images, labels, paths = [images[i] for i in order], [labels[i] for i in order], [paths[i] for i in order]
    if label_private is not None:
        queries = [images[row] for row in public_split(len(images), label_private, split_seed)[0]]
    elif public is not None:
        queries = _public_images(public, side, colour)
    held_out = None
    if evaluation is not None:
        with contextlib.nullcontext() if evaluation_public else _silence():
            folder = _folder("evaluation", evaluation)
            held_out = _labelled("evaluation" if evaluation_public else "private", folder, names, side, colour)
    _refuse_copy("public", images, [] if public is None else queries)
    _refuse_copy("evaluation", images, held_out[0] if held_out is not None and evaluation_public else [])

    def scale(pixels: list[Pixels]) -> npt.NDArray[np.float32]:
        stacked = np.stack(pixels) if pixels else np.zeros((0, 3 if colour else 1, side, side), dtype=np.uint8)
        return scale_images(stacked, mean, std, flatten)

    dataset = PrivateDataset(
        name=top.name if name is None else name,
        num_classes=len(names),
        class_names=names,
        private_features=scale(images),
        private_labels=np.array(labels, dtype=np.int64),
        private_ids=np.array(paths, dtype=object),
        public_features=scale(queries),
        evaluation_features=None if held_out is None else scale(held_out[0]),
        evaluation_labels=None if held_out is None else np.array(held_out[1], dtype=np.int64),
        evaluation_public=evaluation_public,
        ids_name_labels=not names_only,
        neighbours="" if label_private is None else "label_only",
    )
    return project(encode(dataset, encoder, layer=layer), components, whiten=whiten, student_columns=student_columns)


def check_folders(
    private: object,
    public: object = None,
    evaluation: object = None,
    class_names: Sequence[str] | None = None,
    label_private: object = None,
    evaluation_public: bool | None = None,
) -> None:
    """Refuse what can be seen without reading an image; arguments as `load_image_folder` takes them.

    A folder below a private class, or above one, holds private images: that depends on paths alone.

    Raises:
        ArgumentError: one line that says what.
    """
    if (public is None) == (label_private is None):
        raise ArgumentError("public or label_private must be given (one of them): a public folder, or how many images to query")
    top = _folder("private", private)
    evaluated = evaluation_is_public(evaluation, evaluation_public)
    names = _class_names(class_names, evaluation if evaluated else None)
    for argument, given in (("public", public), ("evaluation", evaluation)):
        if given is None:
            continue
        folder = _folder(argument, given).resolve()
        for own in (top, *(top / name for name in names)):
            path = own.resolve()
            if folder == path or folder in path.parents or (own != top and path in folder.parents):
                raise ArgumentError(f"{argument} must be apart from the folders of private images, got {given}; {own} is private")


def _refuse_copy(argument: str, private: list[Pixels], public: list[Pixels]) -> None:
    """Refuse a public folder of the same images, all of them and no other (see `fingerprints.refuse_private_file` for why)."""
    if (
        public
        and len(public) == len(private)
        and sorted(map(np.ndarray.tobytes, public)) == sorted(map(np.ndarray.tobytes, private))
    ):
        raise ArgumentError(f"{argument} must hold other images than private, got a copy of them: they are private")


def _public_images(public: str | Path, size: int, colour: bool) -> list[Pixels]:
    queries = [_read_public("public", path, size, colour) for path in _image_paths(_folder("public", public))]
    if not queries:
        raise ArgumentError(f"public must hold at least one image, got none in {public}")
    return queries


def _class_names(class_names: Sequence[str] | None, evaluation: object) -> tuple[str, ...]:
    if class_names is not None:
        return tuple(str(name) for name in listed("class_names", class_names))
    if evaluation is None:
        raise ArgumentError(
            "class_names must be the public list of classes, got None; the private folder may not supply it, because one record "
            "could add a class"
        )
    return tuple(sorted(path.name for path in _folder("evaluation", evaluation).iterdir() if path.is_dir()))


def _folder(argument: str, path: object) -> Path:
    folder = file_path(argument, path).expanduser()
    if not folder.is_dir():
        raise ArgumentError(f"{argument} must be a folder of images, got {path}")
    return folder


def _image_paths(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def _labelled(
    argument: str, folder: Path, names: tuple[str, ...], size: int, colour: bool
) -> tuple[list[Pixels], list[int], list[str]]:
    """Pixels, labels and relative paths of all readable images below the class folders."""
    images, labels, paths = [], [], []
    for label, name in enumerate(names):
        for path in _image_paths(folder / name):
            pixels = _read(path, size, colour) if argument == "private" else _read_public(argument, path, size, colour)
            if pixels is not None:
                images.append(pixels)
                labels.append(label)
                paths.append(path.relative_to(folder).as_posix())
    if not images and argument != "private":
        raise ArgumentError(f"{argument} must hold one folder of images for each class, got no image in {folder}")
    return images, labels, paths


def _read_public(argument: str, path: Path, size: int, colour: bool) -> Pixels:
    pixels = _read(path, size, colour)
    if pixels is None:
        raise ArgumentError(f"{argument} must hold readable images, got {path}")
    return pixels


def _read(path: Path, size: int, colour: bool) -> Pixels | None:
    """Return (channels, size, size) in 0..255, or None for a file that is no image."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                resized = image.convert("RGB" if colour else "L").resize((size, size), Image.Resampling.BILINEAR)
    except Exception:  # noqa: BLE001 - decoders raise what they like, and no private file may stop a run or show in a warning
        return None
    pixels = np.asarray(resized, dtype=np.uint8)
    return pixels.transpose(2, 0, 1) if colour else pixels[None]


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Nothing on standard error meanwhile: C libraries write about damaged files there, past Python."""
    try:
        kept = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
