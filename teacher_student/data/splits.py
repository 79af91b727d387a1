"""Public splits and public projections: computed from public numbers only, the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, fraction_of_one, positive_integer, positive_number

DEFAULT_ROOT = "~/.cache/teacher-student"
"""Folder of downloaded files."""
Floats = npt.NDArray[np.float64]

_BLOCK = 2048  # rows per block of a projection: a block and its result stay in the cache
_RANK = 1e-6  # a direction with a smaller share of the largest singular value counts as not spanned


def public_split(total: int, first: int, seed: int | None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Split the numbers 0 to total - 1 into `first` and the rest, each ascending.

    Args:
        total: how many there are; public.
        first: how many go into the first part; from 1 to total - 1.
        seed: public; None takes the first ones in order. The stream of NumPy's bit generator is fixed for all versions.

    Returns:
        Two int64 arrays of positions.
    """
    first = positive_integer("number of public points", first, maximum=total - 1)
    if seed is None:
        order = np.arange(total)
    else:
        words = np.random.PCG64(positive_integer("split_seed", seed, minimum=0)).random_raw(total)
        order = np.argsort(words, kind="stable")
    return np.sort(order[:first]), np.sort(order[first:])


def deviations(points: npt.NDArray[np.generic], floor: float) -> Floats:
    """Return sqrt(variance + floor) of each column of public points: the floor keeps rare categories from exploding."""
    return np.sqrt(points.var(axis=0, dtype=np.float64) + positive_number("scale", floor))


@dataclass(frozen=True, eq=False)
class PublicProjection:
    """Principal components of public points, as an affine map that treats every record by itself.

    Attributes:
        mean: (d,) float64, of the public points.
        directions: (d, c) float64; `(x - mean) @ directions`, already divided by the singular values if whitened.
    """

    mean: npt.NDArray[np.float64]
    directions: npt.NDArray[np.float64]

    @classmethod
    def fit(
        cls,
        points: npt.NDArray[np.float32],
        components: int,
        *,
        whiten: float = 1.0,
        scale: float | None = None,
        up_to_rank: bool = False,
    ) -> PublicProjection:
        """Compute the map from public points.

        Args:
            points: (m, d), public.
            components: c, at most the rank of the points.
            whiten: 1 gives each component variance 1 on the public points, 0 leaves their ratios as they are, and values between
                divide by a power of the deviation. The mean variance is 1 in every case.
            up_to_rank: take as many components as the points span, at most `components`, instead of refusing.
            scale: divide each column by sqrt(variance + scale) first, so that rarer categories count more; None leaves them.

        Raises:
            ArgumentError: more components than columns or than the points span, `whiten` outside [0, 1], `scale` not above 0.
        """
        components = positive_integer("components", components, maximum=None if up_to_rank else min(points.shape))
        mean = points.mean(axis=0, dtype=np.float64)
        centred = points.astype(np.float64) - mean
        power = fraction_of_one("whiten", whiten)
        spread = deviations(centred, scale) if scale is not None else np.ones(centred.shape[1])
        _, singular, rows = np.linalg.svd(centred / spread, full_matrices=False)
        if up_to_rank:
            components = max(1, min(components, int((singular > _RANK * singular[0]).sum())))
        kept = rows[:components]
        signs = np.sign(kept[np.arange(components), np.abs(kept).argmax(axis=1)])  # the largest entry of each is positive
        directions = (kept * signs[:, None]).T / spread[:, None]
        if singular[components - 1] <= _RANK * singular[0]:
            raise ArgumentError(f"components must be at most the rank of the public points, got {components}")
        deviation = singular[:components] / np.sqrt(len(points))
        left = deviation ** (1 - power)  # the deviations after the division
        return cls(mean, directions / (deviation**power * np.sqrt((left * left).mean())))

    def apply(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Project (n, d) to (n, c) float32, with the same bits for a record whatever other records stand beside it.

        A matrix product does not promise that: libraries choose their kernels, and so the order of additions, by the number of
        rows and a row's place among them. One record more could then change the last bit of another shard's features. Here
        every number is a sum over the columns in their order, from correctly rounded products.
        """
        projected = np.empty((len(features), self.directions.shape[1]), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # one private NaN must not show as a warning
            for start in range(0, len(features), _BLOCK):
                block = np.ascontiguousarray(features[start : start + _BLOCK].T, dtype=np.float64) - self.mean[:, None]
                total = np.zeros((self.directions.shape[1], block.shape[1]))
                for column, weights in zip(block, self.directions, strict=True):
                    total += weights[:, None] * column
                projected[start : start + _BLOCK] = total.T
        return projected
