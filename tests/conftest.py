"""What all tests share: none of them writes into the ledger that runs of this checkout keep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_ledger_by_default() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEACHER_STUDENT_LEDGER", "")
        yield
