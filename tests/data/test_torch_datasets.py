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
    names = [f"p{index}" for index in range(6)]
    data = from_torch(PRIVATE, public, PRIVATE, class_names=CLASSES, ids=names, evaluation_public=True)
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


ODD = [
    ([torch.ones(2)], "must yield pairs"),
    ([(torch.ones(2), "cat")], "must yield integer labels"),
    ([(torch.ones(2), 0), (torch.ones(3), 0)], "must yield features of one shape"),
    ([(torch.ones(2), 2)], "must lie between 0 and 1, got 2"),
]


@pytest.mark.parametrize(("items", "message"), ODD)
def test_public_items_that_cannot_be_used_get_one_clear_line(items, message):
    sound = Pairs([(torch.ones(2), 0)])
    with pytest.raises(ArgumentError, match=message):
        from_torch(sound, Pairs([torch.ones(2)]), Pairs(items), class_names=CLASSES, evaluation_public=True)
    with pytest.raises(ArgumentError, match="evaluation_public must be true or false for data that is evaluated, got nothing"):
        from_torch(sound, Pairs([torch.ones(2)]), Pairs(items), class_names=CLASSES)


@pytest.mark.parametrize("odd", [items[-1] for items, _ in ODD] + [None, (torch.ones(1), 0), (torch.ones(2), 2**70)])
def test_a_private_item_that_cannot_be_used_stays_with_itself(odd):
    sound = [(torch.full((2,), float(index)), index % 2) for index in range(4)]
    ids = [1, 2, "odd", 3, 4]
    data = from_torch(Pairs([*sound[:2], odd, *sound[2:]]), Pairs([torch.ones(2)]), class_names=CLASSES, ids=ids)
    assert data.private_features[[0, 1, 3, 4]].tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert data.private_labels[[0, 1, 3, 4]].tolist() == [0, 1, 0, 1]
    assert data.private_labels[2] == -1 or np.isnan(data.private_features[2]).all()
    assert data.private_ids.tolist() == ids
