"""Every loader on every hostile record: nothing that anybody sees depends on it.

The default suite takes the nastiest ones; the whole table, with `test_settings.py`:

    uv run pytest -m "slow or not slow" tests/metamorphic
"""

from __future__ import annotations

import pytest

from .loaders import LOADERS
from .pairs import CHEAP, World


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world") / "here")


def cases():
    for name, loader in LOADERS.items():
        for mutation in loader.mutations:
            marks = () if mutation in loader.nastiest else (pytest.mark.slow,)
            yield pytest.param(name, mutation, marks=marks, id=f"{name}-{mutation}")


@pytest.mark.parametrize(("name", "mutation"), cases())
def test_one_record_changes_nothing_that_anybody_sees(name, mutation, world):
    loader = LOADERS[name]
    usual = world.outcome(loader, None, CHEAP)
    assert usual.code == 0, usual.err
    assert usual.differences(world.outcome(loader, loader.mutations[mutation], CHEAP)) == []
