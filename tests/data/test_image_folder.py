from __future__ import annotations

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.data import load, load_image_folder, shard_dataset

Image = pytest.importorskip("PIL.Image")


def paint(path, value, mode="RGB", size=(5, 7)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (value,) * 3 if mode == "RGB" else value).save(path)


@pytest.fixture
def folders(tmp_path):
    for index in range(3):
        paint(tmp_path / "private" / "cat" / f"{index}.png", 10 * index)
        paint(tmp_path / "private" / "dog" / "big" / f"{index}.jpg", 200)
    paint(tmp_path / "public" / "b.png", 51)
    paint(tmp_path / "public" / "deep" / "a.png", 255, mode="L")
    for name in ("cat", "dog"):
        paint(tmp_path / "evaluation" / name / "0.png", 0)
    return tmp_path


def read(folders, **options):
    return load_image_folder(
        folders / "private", folders / "public", **{"evaluation": folders / "evaluation", "size": 4} | options
    )


def test_folders_are_read(folders):
    data = read(folders)
    assert data.class_names == ("cat", "dog")
    assert data.private_features.shape == (6, 3, 4, 4)
    assert data.private_ids.tolist() == ["cat/0.png", "cat/1.png", "cat/2.png", "dog/big/0.jpg", "dog/big/1.jpg", "dog/big/2.jpg"]
    assert data.private_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert np.allclose(data.public_features[:, 0, 0, 0], [0.2, 1.0])
    assert data.evaluation_labels.tolist() == [0, 1]
    assert read(folders, colour=False, flatten=True).private_features.shape == (6, 16)
    assert data.neighbours == "add_remove"


def test_a_damaged_private_file_is_no_record_and_goes_unmentioned(folders, capfd):
    before = read(folders)
    (folders / "private" / "cat" / "1b.png").write_bytes(b"no image")
    half = (folders / "private" / "cat" / "0.png").read_bytes()
    (folders / "private" / "cat" / "half.png").write_bytes(half[: len(half) // 2])
    after = read(folders)
    assert after.private_ids.tolist() == before.private_ids.tolist()
    assert (after.private_features == before.private_features).all()
    assert capfd.readouterr() == ("", "")


def test_images_through_a_residual_network(folders):
    """torchvision's own, with BatchNorm: what it says of an image does not depend on the others."""
    from torchvision.models import resnet18

    seen = {"size": 16, "encoder": resnet18(), "layer": "avgpool", "evaluation": None, "class_names": ["cat", "dog"]}
    before = read(folders, **seen).private_features
    assert before.shape == (6, 512)
    (folders / "private" / "cat" / "1.png").unlink()
    after = read(folders, **seen, components=1)
    assert after.public_features.shape == (2, 1)
    assert (after.student_encoding.inner.project(read(folders, size=16).private_features) == before[[0, 2, 3, 4, 5]]).all()


@pytest.mark.parametrize("which", ["public", "evaluation/cat"])
def test_a_damaged_public_file_is_an_error(folders, which):
    (folders / which / "bad.png").write_bytes(b"no image")
    with pytest.raises(ArgumentError, match=r"must hold readable images, got .*bad\.png"):
        read(folders)


def test_ids_without_the_class_folder_allow_changed_labels(folders):
    with pytest.raises(ArgumentError, match="neighbours must be add_remove for ids that contain the label"):
        read(folders).label_private(np.array([0]))
    data = read(folders, ids="name")
    assert data.private_ids.tolist() == ["0.png", "1.png", "2.png", "big/0.jpg", "big/1.jpg", "big/2.jpg"]
    first = data.label_private(np.array([0, 3]))
    (folders / "private" / "cat" / "1.png").rename(folders / "private" / "dog" / "1.png")  # one label changes
    second = read(folders, ids="name").label_private(np.array([0, 3]))
    assert (second.private_labels != first.private_labels).sum() == 1
    assert (second.private_features == first.private_features).all()
    key = b"0123456789abcdef"
    assert (shard_dataset(first, 3, key)[0].order == shard_dataset(second, 3, key)[0].order).all()


def test_names_that_repeat_over_classes_are_refused_as_ids(folders):
    paint(folders / "private" / "dog" / "1.png", 3)
    with pytest.raises(ArgumentError, match=r"private_ids must not repeat, got '1.png' twice"):
        read(folders, ids="name")
    assert len(read(folders).private_ids) == 7


def test_the_class_list_is_public(folders):
    paint(folders / "private" / "zebra" / "0.png", 3)
    assert read(folders).class_names == ("cat", "dog")
    assert read(folders, class_names=["dog", "cat"]).private_labels.tolist() == [0, 0, 0, 1, 1, 1]
    for options in ({"evaluation": None}, {"evaluation_public": False}):
        with pytest.raises(ArgumentError, match="class_names must be the public list of classes"):
            read(folders, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evaluation": "absent"}, "evaluation must be a folder of images, got absent"),
        ({"class_names": ["bird"]}, "private must hold one folder of images for each class, got no image"),
        ({"size": 0}, "size must be a positive integer, got 0"),
        ({"ids": "hash"}, "ids must be one of name, path; got 'hash'"),
    ],
)
def test_bad_options_get_one_clear_line(folders, options, message):
    with pytest.raises(ArgumentError, match=message):
        read(folders, **options)
    with pytest.raises(ArgumentError, match="private must be a folder of images, got absent"):
        load_image_folder("absent", folders / "public", folders / "evaluation")


def test_an_empty_public_folder_is_refused(folders):
    (folders / "void").mkdir()
    with pytest.raises(ArgumentError, match="public must hold at least one image"):
        load_image_folder(folders / "private", folders / "void", folders / "evaluation")


def test_label_private_mode_queries_training_images(folders):
    options = {"private": folders / "private", "evaluation": folders / "evaluation"}
    data = load("image_folder", label_private=2, ids="name", **options)
    assert data.neighbours == "label_only"
    rows = {row.tobytes() for row in data.private_features}
    assert len(data.public_features) == 2
    assert all(row.tobytes() in rows for row in data.public_features)
    with pytest.raises(ArgumentError, match="neighbours must be add_remove for ids that contain the label"):
        load("image_folder", label_private=2, **options)
    for both in ({}, {"label_private": 2, "public": folders / "public"}):
        with pytest.raises(ArgumentError, match="public or label_private must be given"):
            load("image_folder", **options, **both)
