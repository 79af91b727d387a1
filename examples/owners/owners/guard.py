"""What an owner checks before it takes part in a secure aggregation: it trusts no server with more than one sum.

Flower's client checks little of what a server sends. An owner here refuses parameters that are not those of the question, a
threshold below `least`, an unmasking that asks for both secrets of one owner (which would show that owner's vector), one of fewer
than `least` owners, and more unmaskings of a question than it was told to allow, over restarts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage

from owners.rules import Settings
from owners.shares import MODULUS, reach
from teacher_student.arguments import ArgumentError

RECORD = "owners"


def protocol(settings: Settings, num_queries: int) -> dict[str, Any]:
    """Return the parameters of SecAgg+ under which small whole numbers stay exact, and `least` owners are needed."""
    bound = reach(settings, num_queries)
    return {
        Key.THRESHOLD: settings.least,
        Key.CLIPPING_RANGE: float(bound),
        Key.TARGET_RANGE: 2 * bound,
        Key.MOD_RANGE: MODULUS,
        Key.MAX_WEIGHT: 1.0,
    }


def guard(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Refuse what a server that follows the protocol would never send."""
    if message.metadata.message_type != MessageType.TRAIN:
        return call_next(message, context)
    settings, given = Settings.from_config(context.run_config), message.content.config_records[RECORD_KEY_CONFIGS]
    own = int(context.node_config.get("least", settings.least))
    if settings.least < own:
        raise ArgumentError(f"least must be at least this owner's {own}, got {settings.least}")
    if given[Key.STAGE] == Stage.SETUP:
        wanted = protocol(settings, settings.ask)
        if any(given.get(name) != value for name, value in wanted.items()):
            raise ArgumentError("the server's parameters must be those of the question, got others")
        if not settings.least <= int(given[Key.SAMPLE_NUMBER]) == int(given[Key.SHARE_NUMBER]) <= settings.owners:
            raise ArgumentError(
                f"the owners of a sum must be {settings.least} to {settings.owners}, got {given[Key.SAMPLE_NUMBER]}"
            )
    if given[Key.STAGE] == Stage.UNMASK:
        active, dead = list(given[Key.ACTIVE_NODE_ID_LIST]), list(given[Key.DEAD_NODE_ID_LIST])
        if len(set(active + dead)) < len(active + dead) or len(active) < settings.least:
            raise ArgumentError(f"unmasking must be of at least {settings.least} different owners, got {len(active)}")
        once_more(context, settings)
    return call_next(message, context)


def remember(context: Context, state: Path, question: str) -> None:
    """Remember the question whose masked vector this owner sends."""
    context.state.config_records[RECORD] = ConfigRecord({"question": question, "state": str(state)})


def once_more(context: Context, settings: Settings) -> None:
    """Count an unmasking, on disk, before this owner helps with it; refuse one too many."""
    kept = context.state.config_records[RECORD]
    path, question = Path(str(kept["state"])) / "unmaskings.json", str(kept["question"])
    counts = json.loads(path.read_text()) if path.exists() else {}
    most = 1 if settings.noise == "owners" else int(context.node_config.get("unmaskings", 3))
    counts[question] = counts.get(question, 0) + 1
    if counts[question] > most:
        raise ArgumentError(f"a question must be unmasked at most {most} times, got another; ask under a new name")
    draft = path.with_suffix(".partial")
    with draft.open("w") as file:
        json.dump(counts, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
