"""What all tests share: none writes into the ledger of this checkout, and processes that they start do so quickly."""

from __future__ import annotations

import os
from collections.abc import Iterator

import hypothesis
import pytest

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one is no fault of the code
hypothesis.settings.load_profile("any machine")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # many tests start processes, and each would compile torch again
os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # test processes side by side, each with threads for all cores, wait for one another


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of runs within the test are small; fixtures that are shared by a module have whole ones, unless they say so."""
    from .pictures import report_little

    report_little(monkeypatch)


@pytest.fixture(scope="session", autouse=True)
def _no_ledger_by_default() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEACHER_STUDENT_LEDGER", "")
        yield
