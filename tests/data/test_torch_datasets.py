from __future__ import annotations

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.data import from_torch

torch = pytest.importorskip("torch")


class Pairs(torch.utils.data.Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


PRIVATE = Pairs([(torch.full((1, 2, 2), float(index)), index % 2) for index in range(6)])
CLASSES = ["even", "odd"]


def test_any_torch_dataset_is_read():
    public = Pairs([torch.ones(1, 2, 2), (torch.zeros(1, 2, 2), -1)])
    data = from_torch(PRIVATE, public, PRIVATE, class_names=CLASSES, ids=[f"p{index}" for index in range(6)])
    assert data.private_features.shape == (6, 1, 2, 2)
    assert data.private_labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.public_features[:, 0, 0, 0].tolist() == [1, 0]
    assert data.neighbours == "add_remove"
    assert from_torch(PRIVATE, public, class_names=CLASSES).neighbours == "replace_one"
    assert from_torch(PRIVATE, public, class_names=CLASSES, users=[1, 1, 1, 2, 2, 2]).unit == "user"


def test_tensor_datasets_are_read():
    tensors = torch.utils.data.TensorDataset(torch.ones(3, 2), torch.tensor([0, 1, 1]))
    data = from_torch(tensors, tensors, class_names=CLASSES)
    assert data.private_labels.tolist() == [0, 1, 1]
    assert np.array_equal(data.public_features, np.ones((3, 2)))


@pytest.mark.parametrize(
    ("private", "message"),
    [
        (Pairs([torch.ones(2)]), "private must yield pairs"),
        (Pairs([(torch.ones(2), "cat")]), "private must yield integer labels"),
        (Pairs([(torch.ones(2), 0), (torch.ones(3), 0)]), "private must yield features of one shape"),
        (Pairs([(torch.ones(2), 2)]), "private_labels must lie between 0 and 1, got 2"),
    ],
)
def test_other_items_get_one_clear_line(private, message):
    with pytest.raises(ArgumentError, match=message):
        from_torch(private, Pairs([torch.ones(2)]), class_names=CLASSES)
