"""Your own images: one folder for each class, and a folder of public images without labels.

    private/cat/1.png  private/cat/2.png  private/dog/7.jpg      public/anything.png      evaluation/cat/9.png

The id of an image is its path below the private folder ("cat/1.png"), which stays when other images go, or with `ids="name"` its
path below the class folder ("1.png"), which must then be distinct over the classes but does not change with the label, as
`replace_one` and `label_only` demand. The class list is public: given, or the folder names of the public evaluation set. Every
image is brought to one public size and mode by itself. A private file that is no readable image is no record: it is left out,
and nothing is said about it. A public one is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, choice, file_path, positive_integer
from teacher_student.data.dataset import PrivateDataset
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
    evaluation_public: bool = True,
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
        evaluation_public: False if the evaluation set must stay private.
        name: for reports; None takes the folder's name.

    Raises:
        ArgumentError: a folder that is absent or holds no image, or a damaged public or evaluation image.
    """
    if (public is None) == (label_private is None):
        raise ArgumentError("public or label_private must be given (one of them): a public folder, or how many images to query")
    queries: list[Pixels] = []
    side, names_only = positive_integer("size", size), choice("ids", ids, ("path", "name")) == "name"
    top = _folder("private", private)
    names = _class_names(class_names, evaluation if evaluation_public else None)
    images, labels, paths = _labelled("private", top, names, side, colour)
    if names_only:
        paths = [path.split("/", 1)[1] for path in paths]
        order = sorted(range(len(paths)), key=paths.__getitem__)  # by class, a changed label would move other records
        images, labels, paths = [images[i] for i in order], [labels[i] for i in order], [paths[i] for i in order]
    if label_private is not None:
        queries = [images[row] for row in public_split(len(images), label_private, split_seed)[0]]
    elif public is not None:
        queries = _public_images(public, side, colour)
    held_out = None if evaluation is None else _labelled("evaluation", _folder("evaluation", evaluation), names, side, colour)

    def scale(pixels: list[Pixels]) -> npt.NDArray[np.float32]:
        return scale_images(np.stack(pixels), mean, std, flatten)

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


def _public_images(public: str | Path, size: int, colour: bool) -> list[Pixels]:
    queries = [_read_public("public", path, size, colour) for path in _image_paths(_folder("public", public))]
    if not queries:
        raise ArgumentError(f"public must hold at least one image, got none in {public}")
    return queries


def _class_names(class_names: Sequence[str] | None, evaluation: str | Path | None) -> tuple[str, ...]:
    if class_names is not None:
        return tuple(str(name) for name in class_names)
    if evaluation is None:
        raise ArgumentError(
            "class_names must be the public list of classes, got None; the private folder may not supply it, because one record "
            "could add a class"
        )
    return tuple(sorted(path.name for path in _folder("evaluation", evaluation).iterdir() if path.is_dir()))


def _folder(argument: str, path: str | Path) -> Path:
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
    if not images:
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
        with warnings.catch_warnings(), Image.open(path) as image:
            warnings.simplefilter("ignore")
            resized = image.convert("RGB" if colour else "L").resize((size, size), Image.Resampling.BILINEAR)
    except Exception:  # noqa: BLE001 - decoders raise what they like, and no private file may stop a run or show in a warning
        return None
    pixels = np.asarray(resized, dtype=np.uint8)
    return pixels.transpose(2, 0, 1) if colour else pixels[None]
