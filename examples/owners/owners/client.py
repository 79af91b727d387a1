"""The ClientApp: an owner's side. Its table stays here, and so does what goes wrong with it."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common.recorddict_compat import fitres_to_recorddict, recorddict_to_fitins
from numpy.typing import NDArray

import owners.masks  # noqa: F401 - it puts a cryptographic generator in the place of Flower's
from owners.answering import spec_of_labels
from owners.guard import guard, remember
from owners.rules import UNITS, Settings, vote
from owners.shares import counts_of, key_of, share_of, spec_of
from owners.table import Table, adult_owner, digest, read_points, read_table
from teacher_student.aggregation.ledger import Ledger
from teacher_student.arguments import ArgumentError

app = ClientApp()
LOG = logging.getLogger("flwr")


@app.query()
def query(message: Message, context: Context) -> Message:
    """Answer a question with this owner's votes. A model that fails abstains; only this owner's own log says so."""
    settings, content = Settings.from_config(context.run_config), message.content
    sent = content.array_records["points"].to_numpy_ndarrays()
    points, question = question_of(content.config_records["question"], sent, context, settings)
    if settings.secure:
        raise ArgumentError("secure must be false where votes are asked for, got true")
    pay(context, settings, question)
    try:
        votes = vote(fit_of(context, settings)(table_of(context, settings))(points), len(points), settings.classes)
    except Exception:
        LOG.exception("this owner's model failed; the owner abstains")
        votes = vote(None, len(points), settings.classes)
    reply = RecordDict({"answer": ConfigRecord({"question": question}), "votes": ArrayRecord([votes])})
    return Message(reply, reply_to=message)


@app.query("present")
def present(message: Message, context: Context) -> Message:  # noqa: ARG001 - Flower's signature
    """Answer a greeting."""
    return Message(RecordDict(), reply_to=message)


@app.train(mods=[guard, secaggplus_mod])
def train(message: Message, context: Context) -> Message:
    """Add this owner's counts, and its share of the noise, to a secure sum; SecAgg+ masks them before they leave."""
    settings, asked = Settings.from_config(context.run_config), recorddict_to_fitins(message.content, keep_input=True)
    points, question = question_of(asked.config, parameters_to_ndarrays(asked.parameters), context, settings)
    if not settings.secure:
        raise ArgumentError("secure must be true where a secure sum is asked for, got false")
    state = state_of(context, settings)
    pay(context, settings, question)
    try:
        counts = counts_of(table_of(context, settings), fit_of(context, settings), points, settings, key_of(state))
    except Exception:
        LOG.exception("this owner's table or model failed; the owner abstains")
        counts = np.zeros((len(points), settings.classes), dtype=np.int64)
    remember(context, state, question)
    given = ndarrays_to_parameters([share_of(counts, settings).astype(np.float64)])
    reply = FitRes(Status(Code.OK, ""), given, num_examples=1, metrics={})  # the weight is sent in clear: the same for all
    return Message(fitres_to_recorddict(reply, keep_input=False), reply_to=message)


def question_of(
    config: Mapping[str, Any], sent: Sequence[NDArray[Any]], context: Context, settings: Settings
) -> tuple[NDArray[np.float32], str]:
    """Return public points and the question's name. Nothing private is read before these are known to be what was agreed."""
    points = sent[0] if len(sent) else own_points(context, settings)
    if digest(points) != config["digest"] or points.shape[0] != settings.ask:
        raise ArgumentError(f"points must be the {settings.ask} of the question, of SHA-256 {config['digest']}, got others")
    question = settings.question(digest(points))
    if config["question"] != question:
        raise ArgumentError("question must be the hash of its points and its settings, got another")
    return points, question


def own_points(context: Context, settings: Settings) -> NDArray[np.float32]:
    """Return the owner's own copy of the public points."""
    path = context.node_config.get("points")
    if path is None:
        raise ArgumentError("points must be in the node's configuration where the server sends their hash alone, got none")
    return read_points(str(path))[: settings.ask]


def pay(context: Context, settings: Settings, question: str) -> None:
    """Enter a question into this owner's own ledger, once, before its table is read; refuse one that exceeds its own budget."""
    epsilon, delta = context.node_config.get("budget-epsilon"), context.node_config.get("budget-delta")
    if epsilon is None:
        return
    account = Ledger(state_of(context, settings) / "ledger.sqlite").account(
        "table", epsilon=float(epsilon), delta=float(delta or 0)
    )
    spec = spec_of(settings, settings.ask) if settings.noise == "owners" else spec_of_labels(settings, settings.ask)
    claim = {"epsilon": settings.epsilon, "delta": settings.delta, "neighbours": UNITS[settings.unit][0]}
    account.pay(question, spec, **claim)


def table_of(context: Context, settings: Settings) -> Table:
    """Return this owner's records: the file of its node's configuration, or a part of UCI Adult for the demonstration."""
    given = context.node_config
    if "table" in given:
        return read_table(str(given["table"]))
    return adult_owner(int(given["partition-id"]), int(given["num-partitions"]), settings.skew)


def fit_of(context: Context, settings: Settings) -> Any:
    """Return the owner's own function `fit`, which trains a model."""
    module, _, name = str(context.node_config.get("fit", settings.fit)).partition(":")
    return getattr(importlib.import_module(module), name)


def state_of(context: Context, settings: Settings) -> Path:
    """Return the folder where this owner keeps its ledger and its key; private."""
    default = f"{settings.folder}/owner-{context.node_config.get('partition-id', context.node_id)}"
    path = Path(str(context.node_config.get("state", default))).expanduser()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
