"""Certificates: a frozen record of a release's guarantee, from which anyone can recompute it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from teacher_student.arguments import ArgumentError, choice, file_path, positive_integer, positive_number, probability
from teacher_student.privacy.calibration import parameters_from_dict
from teacher_student.privacy.parameters import NEIGHBOURS, REPLACED, WITHDRAWN, MechanismSpec, check_relation

HYPERPARAMETERS = ("fixed", "public_surrogate")
"""How hyper-parameters were chosen: before anything was known of the data, or on public data that stands in for it. A choice
among private runs is a mechanism of its own, `private_selection`, with its own cost."""

FORMAT = 1

_LATER = {"files"}
"""Fields that certificates of version 0.1.0 lack."""
_NAME = re.compile(r"[^./\\\x00][^/\\\x00]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")

_TOLERANCE = 1e-9
"""Relative room for the last digits of another machine's arithmetic."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """The guarantee of one release.

    Attributes:
        epsilon: claimed for this release alone; at least what the parameters give at `delta`.
        delta: claimed for this release alone.
        mechanism: name.
        parameters: all public numbers of the mechanism, from which the cost is computed.
        private: False if the noise was injected for a test; such a release proves nothing.
        neighbours: the neighbouring relation, one of `NEIGHBOURS`.
        used: public or released facts, such as the number of queries and of paid abstentions.
        composition: earlier releases on the same data; each mapping holds at least neighbours, epsilon, delta and parameters.
            Public, like the whole certificate: no fingerprint of the data, no times.
        not_covered: what the guarantee does not cover.
        versions: of the libraries that drew and accounted for the noise.
        files: hexadecimal SHA-256 of each released file that the certificate binds, by its name in the release folder: the
            answers, and for a run also the student and the report. Empty in certificates of version 0.1.0, which bind no files.
    """

    epsilon: float
    delta: float
    mechanism: str
    parameters: MechanismSpec
    private: bool
    neighbours: str
    used: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    composition: tuple[Mapping[str, Any], ...] = ()
    not_covered: tuple[str, ...] = ()
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the guarantee in one line; `to_json` returns all fields."""
        noise = "" if self.private else ", injected noise: not private"
        return (
            f"Certificate({self.mechanism}, epsilon={self.epsilon:g}, delta={self.delta:g}, {self.relation}{noise}; "
            f"{len(self.composition)} earlier releases, binds {', '.join(self.files) or 'no files'})"
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive_number("epsilon", self.epsilon))
        object.__setattr__(self, "delta", probability("delta", self.delta))
        choice("neighbours", self.neighbours, NEIGHBOURS)
        if not isinstance(self.private, bool):
            raise ArgumentError(f"private must be true or false, got {self.private!r}")
        if not isinstance(self.parameters, MechanismSpec):
            raise ArgumentError(f"parameters must be those of a mechanism, got {self.parameters!r}")
        check_relation(self.neighbours, self.parameters)
        for name in ("used", "versions", "files"):
            if not isinstance(facts := getattr(self, name), Mapping):
                raise ArgumentError(f"{name} must be facts by name, got {facts!r}")
            _check_json(name, dict(facts))
        for name in ("composition", "not_covered"):
            if not isinstance(entries := getattr(self, name), tuple | list):
                raise ArgumentError(f"{name} must be a tuple, got {entries!r}")
            object.__setattr__(self, name, tuple(entries))
        if any(not isinstance(entry, Mapping) for entry in self.composition):
            raise ArgumentError(f"composition must hold a mapping for each release, got {self.composition!r}")
        _check_json("composition", [dict(entry) for entry in self.composition])
        if any(not isinstance(line, str) for line in self.not_covered):
            raise ArgumentError(f"not_covered must be texts, got {self.not_covered!r}")
        _check_files(self.files)
        if self.mechanism != self.parameters.mechanism:
            raise ArgumentError(f"mechanism must be that of the parameters, {self.parameters.mechanism}, got {self.mechanism!r}")

    @property
    def relation(self) -> str:
        """The neighbouring relation in words, with what `vote_change` adds to it."""
        own = getattr(self.parameters.one_session, "vote_change", REPLACED) == WITHDRAWN
        return f"{self.neighbours} of voters that are themselves protected" if own else self.neighbours

    def to_json(self) -> str:
        """Return the certificate as JSON; every number is exact."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {"parameters": self.parameters.to_dict(), "used": dict(self.used), "versions": dict(self.versions)}
        fields |= {"composition": [dict(entry) for entry in self.composition], "not_covered": list(self.not_covered)}
        fields |= {"files": dict(self.files)}
        return json.dumps({"format": FORMAT, **fields}, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the certificate that `to_json` wrote.

        Raises:
            ArgumentError: not JSON, a missing or unknown field, a number out of range.
        """
        try:
            fields = json.loads(text, parse_constant=_refuse_constant)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"certificate must be JSON with finite numbers, got {str(text)[:40]!r}") from error
        names = {field.name for field in dataclasses.fields(cls)}
        given = fields.pop("format", None) if isinstance(fields, dict) else None
        if type(given) is not int or given != FORMAT or not names - _LATER <= set(fields) <= names:
            raise ArgumentError(f"certificate must hold format {FORMAT} and {', '.join(sorted(names))}")
        fields.setdefault("files", {})
        for name, kind in (("used", dict), ("versions", dict), ("composition", list), ("not_covered", list), ("files", dict)):
            if not isinstance(fields[name], kind):
                raise ArgumentError(f"certificate's {name} must be a {kind.__name__}, got {fields[name]!r}")
        fields["parameters"] = parameters_from_dict(fields["parameters"])
        fields["composition"] = tuple(fields["composition"])
        fields["not_covered"] = tuple(fields["not_covered"])
        return cls(**fields)

    def verify(self, folder: str | os.PathLike[str] | None = None) -> float:
        """Recompute epsilon and delta from the recorded parameters alone, for this release and each earlier one that it lists.

        Args:
            folder: of the release; if given, every file that the certificate binds must be there, unchanged.

        Returns:
            The recomputed epsilon at the claimed delta; at most the claimed one.

        Raises:
            ArgumentError: injected noise, a claim that the parameters do not support, or a file that is missing or was changed.
        """
        if folder is not None:
            self.check_files(folder)
        if not self.private:
            raise ArgumentError(
                "certificate must be of a private release, got private: false (the noise was injected for a test)"
            )
        self.check_used()
        for earlier, epsilon, delta in self._earlier():
            _recompute(earlier, epsilon, delta)
        return _recompute(self.parameters, self.epsilon, self.delta)

    def check_files(self, folder: str | os.PathLike[str], *, partial: bool = False) -> None:
        """Check that the files of a folder are those that the certificate binds.

        Args:
            folder: of the release.
            partial: whether files may be missing, as in a copy of the answers alone.

        Raises:
            ArgumentError: a file is missing, cannot be read, or was changed.
        """
        for name, digest in self.files.items():
            path = file_path("folder", folder) / name
            if partial and not path.exists():
                continue
            try:
                found = file_digest(path)
            except OSError as error:
                raise ArgumentError(
                    f"folder must hold {name}, which its certificate binds, got {path}: {error.strerror}"
                ) from error
            if found != digest:
                raise ArgumentError(f"{name} must be the file that its certificate binds, got {path}, which was changed")

    def total(self, delta: float) -> float:
        """Return the sum of the epsilons of this release and the earlier ones; infinite if their deltas add up to more.

        Sums also hold where a release and its parameters were chosen after seeing the earlier ones (Rogers, Roth, Ullman, Vadhan
        2016). `Composition` is sharper for a list that was fixed beforehand, which no certificate can prove.

        Raises:
            ArgumentError: what `verify` raises.
        """
        self.verify()
        claims = [(self.epsilon, self.delta), *((epsilon, claimed) for _, epsilon, claimed in self._earlier())]
        enough = math.fsum(claimed for _, claimed in claims) <= probability("delta", delta) * (1 + _TOLERANCE)
        return math.fsum(epsilon for epsilon, _ in claims) if enough else math.inf

    def check_used(self) -> None:
        """Refuse facts of the wrong type, and more payments than the parameters allow."""
        for name, value in self.used.items():
            if isinstance(value, bool):
                raise ArgumentError(f"{name} must not be a truth value in a certificate, got {value!r}")
        for name in ("num_queries", "answered", "paid"):
            positive_integer(name, self.used.get(name, 0), minimum=0)
        limit = self.parameters.one_session.limit
        if self.used.get("paid", 0) > limit.most:
            raise ArgumentError(
                f"paid must be a whole number of at most the {limit.name} {limit.most}, got {self.used['paid']!r}"
            )

    def _earlier(self) -> list[tuple[MechanismSpec, float, float]]:
        found = []
        for entry in self.composition:
            if not isinstance(entry, Mapping) or not {"neighbours", "epsilon", "delta", "parameters"} <= set(entry):
                raise ArgumentError(
                    f"composition must hold neighbours, epsilon, delta and parameters of each release, got {entry!r}"
                )
            if entry["neighbours"] != self.neighbours:
                raise ArgumentError(f"composition must be under one relation, {self.neighbours}, got {entry['neighbours']!r}")
            claims = positive_number("epsilon", entry["epsilon"]), probability("delta", entry["delta"])
            earlier = parameters_from_dict(entry["parameters"])
            check_relation(self.neighbours, earlier)
            found.append((earlier, *claims))
        return found


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _recompute(parameters: MechanismSpec, epsilon: float, delta: float) -> float:
    """Return the epsilon that `parameters` give at `delta`; refuse a claim that they do not support."""
    try:
        found, least = parameters.epsilon(delta), parameters.delta(epsilon)
    except ArgumentError:
        raise
    except (ArithmeticError, ValueError, Warning) as error:
        raise ArgumentError(
            f"parameters must have a cost that can be computed at epsilon {epsilon:g} and delta {delta:g}, got {parameters!r}"
        ) from error
    if not found <= epsilon * (1 + _TOLERANCE):  # also refuses NaN and infinity
        raise ArgumentError(f"epsilon must be at least {found:.6g} at delta {delta:g} by its parameters, got {epsilon:g}")
    if not least <= delta * (1 + _TOLERANCE):
        raise ArgumentError(f"delta must be at least {least:.6g} at epsilon {epsilon:g} by its parameters, got {delta:g}")
    return found


def _check_files(files: Mapping[str, str]) -> None:
    """Refuse entries that are not the SHA-256 of a file directly in the release folder."""
    for name, digest in files.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not _DIGEST.fullmatch(str(digest)):
            raise ArgumentError(f"files must hold the SHA-256 of plain files by their names, got {name!r}: {digest!r}")


def _check_json(name: str, value: object) -> None:
    """Refuse a value that JSON cannot hold."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{name} must hold texts and finite numbers, as JSON can, got {value!r}") from error


def _refuse_constant(name: str) -> float:
    raise ValueError(name)
