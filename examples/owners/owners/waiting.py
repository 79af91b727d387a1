"""Waiting until the owners are connected."""

from __future__ import annotations

import time

from flwr.serverapp import Grid

from owners.rules import Settings


def wait_for_owners(grid: Grid, settings: Settings) -> list[int]:
    """Return the connected owners: all of them, or those that are there when the deadline has passed."""
    end = time.monotonic() + settings.deadline
    while len(nodes := sorted(grid.get_node_ids())) < settings.owners and time.monotonic() < end:
        time.sleep(1)
    return nodes
