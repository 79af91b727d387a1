"""Sums of the owners' votes on the server, by Flower's SecAgg+: the server sees no vote, and no owner's counts.

Flower 1.41 reaches SecAgg+ through its older fit workflow alone, so counts travel as "parameters" of a fit, and the questions are
messages of the type `train`. Only the workflow is used; `DefaultWorkflow` and its client manager are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common.recorddict_compat import parameters_to_arrayrecord
from flwr.server.client_manager import SimpleClientManager
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.serverapp import Grid
from numpy.typing import NDArray

import owners.masks  # noqa: F401 - it puts a cryptographic generator in the place of Flower's
import teacher_student as ts
from owners.answering import Place
from owners.guard import Key, protocol
from owners.rules import Settings
from owners.shares import scale_of
from owners.table import digest
from owners.waiting import wait_for_owners
from teacher_student.arguments import ArgumentError
from teacher_student.mechanisms import SystemNoise

NOT_WHOLE = 1e-3
SEEN = "name must be a new one, got that of a question whose sums may have been seen; its budget is spent"


class NoiseOfOwners(SystemNoise):
    """The sums, with the owners' own noise in them, where a session draws its noise: it adds them to counts of zero."""

    sums: NDArray[np.int64] | None = None

    def discrete_gaussian(self, scale: Any, size: int) -> NDArray[np.int64]:  # noqa: ARG002 - the owners have drawn it
        """Return the sums; without them nothing can be answered."""
        if self.sums is None or self.sums.size != size:
            raise ArgumentError("sums must be those of the owners, got none")
        sums, self.sums = self.sums.ravel(), None
        return sums


class OneNode:
    """What the workflow needs of a client: its number."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id


class Collect:
    """The strategy of one round: the same question to all, and their mean as it is."""

    def __init__(self, nodes: list[int], instructions: FitIns) -> None:
        self.nodes, self.instructions, self.mean, self.owners = nodes, instructions, None, 0

    def configure_fit(self, *given: Any) -> list[tuple[OneNode, FitIns]]:  # noqa: ARG002 - Flower's signature
        """Ask all nodes."""
        return [(OneNode(node), self.instructions) for node in self.nodes]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[None, dict[str, Any]]:  # noqa: ARG002
        """Keep the mean that the workflow has found, and of how many owners it is."""
        (self.mean,) = parameters_to_ndarrays(results[0][1].parameters)
        self.owners = len(results)
        return None, {}


class Workflow(SecAggPlusWorkflow):
    """SecAgg+, with a step before anything is unmasked. Flower's own can lose no owner before its keys are shared."""

    before_unmasking: Callable[[], None]
    unmasking = False

    def setup_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        """Collect public keys, of all owners or of none."""
        return super().setup_stage(grid, context, state) and state.active_node_ids == state.sampled_node_ids

    def share_keys_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        """Collect shares of keys, of all owners or of none."""
        return super().share_keys_stage(grid, context, state) and state.active_node_ids == state.sampled_node_ids

    def unmask_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        """Do what has to be done before a sum may be seen, and unmask it."""
        self.before_unmasking()
        self.unmasking = True
        return super().unmask_stage(grid, context, state)


def sums_of(
    grid: Grid,
    context: Context,
    settings: Settings,
    points: NDArray[np.float32],
    before_unmasking: Callable[[], None] = lambda: None,
) -> NDArray[np.int64]:
    """Return the owners' sums, shape (num_queries, classes). A round with too few owners is repeated; it shows nothing.

    Raises:
        ArgumentError: too few owners in every round.
    """
    wanted = protocol(settings, len(points))
    config = {"question": settings.question(digest(points)), "digest": digest(points)}
    instructions = FitIns(ndarrays_to_parameters([points] if settings.send_points else []), config)
    for number in range(1, settings.attempts + 1):
        strategy = Collect(present(grid, settings, number), instructions)
        if len(strategy.nodes) > settings.owners:
            raise ArgumentError(f"owners must be at least the {len(strategy.nodes)} that are connected, got {settings.owners}")
        if len(strategy.nodes) >= settings.least:
            workflow = Workflow(
                num_shares=1.0,
                reconstruction_threshold=settings.least,
                max_weight=wanted[Key.MAX_WEIGHT],
                clipping_range=wanted[Key.CLIPPING_RANGE],
                quantization_range=wanted[Key.TARGET_RANGE],
                modulus_range=wanted[Key.MOD_RANGE],
                timeout=settings.deadline,
            )
            workflow.before_unmasking = before_unmasking
            legacy = LegacyContext(context, strategy=strategy, client_manager=SimpleClientManager())  # type: ignore[arg-type]
            legacy.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: number})
            legacy.state.array_records[MAIN_PARAMS_RECORD] = parameters_to_arrayrecord(
                ndarrays_to_parameters([]), keep_input=False
            )
            try:
                workflow(grid, legacy)
            except ArgumentError:
                raise
            except Exception as error:  # noqa: BLE001 - an owner can send anything, and Flower's workflow may stumble over it
                print(f"round {number}: {type(error).__name__}: {error}")
            if workflow.unmasking and strategy.mean is None and settings.noise == "owners":
                raise ArgumentError(SEEN)
        if strategy.mean is not None:
            return whole(strategy.mean * strategy.owners)
        print(f"round {number} of {settings.attempts}: fewer than {settings.least} owners took part; no sum was seen")
    raise ArgumentError(f"least must be at most the number of owners that answer, got {settings.least}; no sum was seen")


def present(grid: Grid, settings: Settings, number: int) -> list[int]:
    """Return the owners that answer a greeting: SecAgg+ of Flower cannot lose an owner before its keys are shared."""

    def greeting(node: int) -> Message:
        return Message(RecordDict(), node, f"{MessageType.QUERY}.present", group_id=str(number), ttl=settings.deadline)

    replies = grid.send_and_receive([greeting(node) for node in wait_for_owners(grid, settings)], timeout=settings.deadline)
    return sorted({reply.metadata.src_node_id for reply in replies if not reply.has_error()})


def whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the whole numbers that the sums are. An owner with another weight leaves fractions."""
    nearest = np.rint(values)
    if not np.isfinite(values).all() or np.abs(values - nearest).max() > NOT_WHOLE:
        raise ArgumentError("sums must be whole numbers, got others: an owner did not follow the protocol; nothing was spent")
    return nearest.astype(np.int64)


def counts(grid: Grid, context: Context, settings: Settings, points: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return counts of votes, (num_queries, classes), without seeing any vote.

    Whether the counts are possible is all that a server can check of a sum. The session checks it: no count is negative, and no
    row adds up to more than the number of owners.
    """
    return sums_of(grid, context, settings, points)


def fractions(grid: Grid, context: Context, settings: Settings, points: NDArray[np.float32]) -> ts.FractionRelease:
    """Return noisy shares of the votes of all owners' teachers, whose noise the owners have added themselves.

    The cost is in the ledger, and a mark on disk, before a sum can be seen. A server that is killed between the sum and its
    record does not ask again, since another sum of the same counts would have other noise: that question's budget is gone.
    """
    place, noise, names = Place(settings), NoiseOfOwners(), range(len(points))
    mark = place.folder / "unmasking"

    def opened() -> ts.FractionSession:
        teachers = settings.owners * settings.teachers
        given = {"num_teachers": teachers, "state": place.state, "noise": noise, "account": place.account}
        return ts.FractionSession(settings.classes, settings.epsilon, settings.delta, len(points), **given)

    def commit() -> None:
        opened().close()
        with mark.open("x") as file:
            file.write(settings.question(digest(points)))
            file.flush()
            os.fsync(file.fileno())

    if place.state.exists():
        with opened() as session:
            if session.remaining_units == 0:  # all of it is answered, in one transaction
                return session.release()
    if mark.exists():
        raise ArgumentError(SEEN)
    sums = sums_of(grid, context, settings, points, commit)
    with opened() as session:
        noise.sums = sums
        session.answer(counts=np.zeros_like(sums), query_ids=names)
        return session.release()


def shares_said(settings: Settings, num_queries: int) -> dict[str, Any]:
    """Return what a reader of the release has to know about its noise; all of it is public."""
    return {
        "noise": "each owner added a discrete Gaussian of scale share_scale to its counts, before they were summed securely",
        "share_scale": float(scale_of(settings, num_queries)),
        "owners": settings.owners,
        "least_in_a_sum": settings.least,
        "colluding": settings.colluding,
        "holds_against": f"the server and {settings.colluding} owners that follow the protocol and pool what they know",
    }
