"""The ServerApp: asks the owners about public points, and releases labels and a student."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

import teacher_student as ts
from owners.answering import Student, answer, keep, recorded
from owners.rules import Answer, Settings, gather
from owners.table import adult_points, digest, read_points
from owners.waiting import wait_for_owners
from teacher_student.arguments import ArgumentError

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Answer one question, from its public points to a published student."""
    settings = Settings.from_config(context.run_config)
    points, judged = points_of(settings)
    if settings.noise == "owners":
        from owners.sums import fractions, shares_said

        noisy = fractions(grid, context, settings, points)
        student = Student.learn(points, noisy.labels, noisy.fractions)
        folder = keep(settings, noisy, student, shares_said(settings, len(points)))
        release, answered = noisy, f"noisy shares of votes for {int(noisy.answered.sum())}"
    else:
        release = recorded(settings, len(points)) or ask(grid, context, settings, points)
        student = Student.learn(points, release.labels)
        folder = keep(settings, release, student)
        answered = f"labels for {int((release.labels >= 0).sum())}"
    certificate = release.certificate
    guarantee = f"epsilon {certificate.epsilon:g}, delta {certificate.delta:g} ({certificate.neighbours})"
    print(f"{answered} of {len(points)} points, {guarantee}")
    if judged is not None:
        print(f"student accuracy {(student.predict(judged[0]) == judged[1]).mean():.4f} on people that nobody was asked about")
    print(f"release and student: {folder}")


def points_of(settings: Settings) -> tuple[NDArray[np.float32], tuple[NDArray[np.float32], NDArray[np.int64]] | None]:
    """Return the public points that are asked, and labelled public ones that measure the student, if there are any."""
    if settings.points:
        points, judged = read_points(settings.points), None
    else:
        points, *labelled = adult_points()
        judged = (labelled[0], labelled[1])
    if len(points) < settings.ask:
        raise ArgumentError(f"ask must be at most the number of public points, {len(points)}, got {settings.ask}")
    return points[: settings.ask], judged


def ask(grid: Grid, context: Context, settings: Settings, points: NDArray[np.float32]) -> ts.Release:
    """Repeat the round until enough owners have answered, and ask the session once. Nothing is spent before that."""
    if settings.secure:
        from owners.sums import counts

        return answer(settings, counts=counts(grid, context, settings, points))
    question = settings.question(digest(points))
    for number in range(1, settings.attempts + 1):
        asked = wait_for_owners(grid, settings)
        messages = [
            Message(content_of(settings, points, question), node, MessageType.QUERY, group_id=str(number), ttl=settings.deadline)
            for node in asked
        ]
        answers = [read(message) for message in unique(grid.send_and_receive(messages, timeout=settings.deadline))]
        votes = gather(answers, asked, question, settings, len(points))
        if votes is not None:
            return answer(settings, votes)
        print(f"round {number} of {settings.attempts}: fewer than {settings.least} owners answered; nothing was spent")
    raise ArgumentError(f"least must be at most the number of owners that answer, got {settings.least}; nothing was spent")


def content_of(settings: Settings, points: NDArray[np.float32], question: str) -> RecordDict:
    """Return a question as Flower sends it."""
    config = ConfigRecord({"question": question, "digest": digest(points)})
    arrays = ArrayRecord([points] if settings.send_points else [])
    return RecordDict({"question": config, "points": arrays})


def unique(messages: Iterable[Message]) -> list[Message]:
    """Return the messages; two of the same id are one that was delivered twice."""
    return list({message.metadata.message_id: message for message in messages}.values())


def read(message: Message) -> Answer:
    """Return what came from an owner. Whatever cannot be read is an error, and counts as an abstention."""
    owner = message.metadata.src_node_id
    try:
        config = message.content.config_records["answer"]
        (votes,) = message.content.array_records["votes"].to_numpy_ndarrays()
        return Answer(owner, str(config["question"]), votes)
    except Exception:  # noqa: BLE001 - an owner can send anything
        return Answer(owner, None, None)
