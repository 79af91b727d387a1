"""Record gradients: every private record says in which direction one public linear model should move.

The model is a matrix W of weights, one row for each feature and one for the constant 1, one column for each class. The record (x,
y) with features z and probabilities p = softmax(z W) moves W by the outer product of z and its residual 1(y) - p, which is the
negative gradient of the cross-entropy. Summed over all records, with noise, this is a step of full-batch gradient descent with
differential privacy (Song, Chaudhuri, Sarwate 2013; on fixed features: Tramèr, Boneh, "Differentially Private Learning Needs
Better Features (or Much More Data)", ICLR 2021).

**The bound.** The Euclidean norm of an outer product is the product of the norms of its factors, |z r^T| = |z| |r|, because the
sum of (z_i r_j)^2 over all i and j is (sum of z_i^2)(sum of r_j^2). So both factors are made vectors of whole numbers whose
squares add up to at most steps^2 for every number. With D features (the constant among them) and C classes:

    |z|^2 <= steps^2 D,    |r|^2 <= steps^2 C,    so    |z r^T|^2 <= (steps^2)^2 D C

Each factor is shrunk, then rounded toward zero, so rounding never lengthens it. Its length is then checked in whole numbers, and
a factor that floating-point error has made too long counts as zero. No table of D C numbers is rounded or even made for a record.

A person with several records gives the mean of their matrices, rounded toward zero. A mean is no longer than the longest of them.

**To the last bit.** A matrix depends on its own person's records and on public values alone. Features are rounded to a public
grid of whole numbers (`record_voters.IntegerGrid`), and weights to whole numbers. Sums of whole numbers below 2^53 are exact in
double precision, whatever the order of summation, the batch, the BLAS library or the number of threads. Everything else is done
number by number, in operations that IEEE 754 rounds correctly, or is looked up in a table of exponentials.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, Floats, Integers, positive_integer, positive_number
from teacher_student.teachers.record_voters import IntegerGrid, persons

_BLOCK_CELLS = 2**18
"""Features read at a time: 2 MB, which stay in a cache."""
_ONE = 2**16
"""Whole number that stands for the residual 1."""
_FINE = 2**16
"""Steps into which a weight of 1 is divided."""
_LARGEST_WEIGHT = 2.0**30
"""Largest weight in these steps; larger ones are cut off, so that every logit is exact."""
_PER_NAT, _NATS = 256, 16
"""Resolution of the table of exponentials, and its length; beyond it a probability counts as zero."""
_MOST_FEATURES = 2**16


class RecordGradients:
    """The private records of a run, ready to be asked for their gradients of any model.

    Args:
        features: (n, ...) of the private records. A record with a number that is not finite, or whose square is not, gives zeros.
        labels: (n,) int64; a record whose label is not in [0, num_classes) gives zeros.
        points: (num_points, ...) public and finite, of the same shape; the grid comes from them.
        steps: whole number that stands for a root mean square of 1 of the features, and for the norm of residuals.
        ids: (n,) the person of each record; None for one record each.

    Raises:
        ArgumentError: too many features.
    """

    def __init__(
        self,
        features: npt.NDArray[np.float32],
        labels: Integers,
        points: npt.NDArray[np.float32],
        *,
        steps: int,
        ids: npt.NDArray[np.generic] | None = None,
    ) -> None:
        encode = WholeFeatures(points, steps)
        self._labels, self._steps = labels, steps
        self._single, self._several = persons(len(features), ids)
        self._known = np.empty((len(features), encode.length), dtype=np.int16)
        for rows in _blocks(np.arange(len(features)), encode.length):
            self._known[rows] = encode(features[rows])

    def sums(self, weights: Floats, norm: float) -> Integers:
        """Return (D, num_classes) sums of the bounded matrices of all persons; D is the number of features and one.

        Args:
            weights: (D, num_classes) of the model, public and finite; see `WholeFeatures` for the scale of the features.
            norm: public; a residual whose root mean square is larger is shrunk to it.

        Raises:
            ArgumentError: weights of another shape.
        """
        length = self._known.shape[1]
        if weights.shape[:1] != (length,) or weights.ndim != 2:
            raise ArgumentError(f"weights must have {length} rows, one for each feature and one more, got {weights.shape}")
        positive_number("norm", norm)
        whole = np.clip(np.rint(weights * (_FINE / math.sqrt(length))), -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
        sums = np.zeros(weights.shape)

        def products(rows: Integers) -> Floats:
            known = self._known[rows].astype(np.float64)
            return known.T @ _residuals(known @ whole, self._labels[rows], norm, self._steps)

        for rows in _blocks(self._single, length):
            sums += products(rows)
        for rows in self._several:
            sums += np.trunc(products(rows) / len(rows))
        return sums.astype(np.int64)


class WholeFeatures:
    """A public map from features to whole numbers: the direction of a record from the public points' centre, and a constant.

    The numbers of a record have a root mean square of `steps`, less what rounding toward zero takes; the last one is `steps`. A
    logit is the product with the weights after division by steps * sqrt(length), so that every record counts as a vector of
    length 1.

    Args:
        points: (num_points, ...) public and finite.
        steps: see above.

    Attributes:
        length: number of whole numbers, D.

    Raises:
        ArgumentError: more features than sums can be exact for.
    """

    def __init__(self, points: npt.NDArray[np.float32], steps: int) -> None:
        self._grid, self._steps = IntegerGrid.fit(points), positive_integer("steps", steps, maximum=2**7)
        self.length = len(self._grid.center) + 1
        if self.length > _MOST_FEATURES:
            raise ArgumentError(f"features must be at most {_MOST_FEATURES - 1} numbers, got {self.length - 1}")

    def __call__(self, features: npt.NDArray[np.float32]) -> Floats:
        """Return (n, D) whole numbers whose squares add up to at most steps^2 D; zeros for records that cannot be used."""
        rows = features.reshape(len(features), -1)
        with np.errstate(over="ignore", invalid="ignore"):  # one private infinity must not show as a warning
            usable = np.isfinite(rows * rows).all(axis=1)
        cells = np.where(usable[:, None], self._grid.apply(rows), np.float32(0)).astype(np.float64)
        found = np.empty((len(cells), self.length))
        found[:, :-1] = _shrunk(cells, math.inf, self._steps**2 * (self.length - 1))
        found[:, -1] = np.where(usable, self._steps, 0)
        return found

    def unit(self, features: npt.NDArray[np.float32]) -> Floats:
        """Return (n, D) vectors of length 1, up to rounding; their products with weights are logits."""
        return self(features) / (self._steps * math.sqrt(self.length))


def _blocks(rows: Integers, length: int) -> Iterator[Integers]:
    size = max(1, _BLOCK_CELLS // length)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _shrunk(whole: Floats, most: float, squares: int) -> Floats:
    """Return whole rows, scaled by at most `most`, whose squares add up to at most `squares`; rounded toward zero."""
    own = (whole * whole).sum(axis=1, keepdims=True)  # exact
    scaled = np.trunc(whole * np.minimum(most, math.sqrt(squares) / np.sqrt(np.maximum(own, 1.0))))
    return np.where((scaled * scaled).sum(axis=1, keepdims=True) <= squares, scaled, 0.0)


def _residuals(logits: Floats, labels: Integers, norm: float, steps: int) -> Floats:
    """Return (n, C) whole numbers, 1(label) - p in units of norm / steps, shrunk to a root mean square of at most `steps`.

    Args:
        logits: (n, C) whole numbers, in units of 1 / (steps * _FINE).
        labels: (n,).
        norm: see `RecordGradients.sums`.
        steps: see `RecordGradients`.
    """
    classes = logits.shape[1]
    behind = logits.max(axis=1, keepdims=True) - logits
    table = _exponentials()
    heights = table[np.minimum(behind * (_PER_NAT / (steps * _FINE)), len(table) - 1.0).astype(np.int64)]
    residuals = -np.rint(heights * (_ONE / heights.sum(axis=1, keepdims=True)))
    known = (labels >= 0) & (labels < classes)
    rows = np.flatnonzero(known)
    residuals[rows, labels[rows]] += _ONE
    return np.where(known[:, None], _shrunk(residuals, steps / (norm * _ONE), steps**2 * classes), 0.0)


@functools.cache
def _exponentials() -> Floats:
    """Return exp(-place / _PER_NAT) in whole numbers, 2^20 for 1; the last is 0."""
    table = np.rint(np.exp(-np.arange(_PER_NAT * _NATS + 1) / _PER_NAT) * 2.0**20)
    table[-1] = 0.0
    table.flags.writeable = False
    return table
