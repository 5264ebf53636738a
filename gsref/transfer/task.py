"""What is the downstream data law?

The pattern (d, D, relevant group r) is that of a pretraining problem; direction, law of the coordinates and margin are
the task's own:

    x_j[i] independent, mean 0, variance 1, of the named law;   y = sign(<x_r, v~*>);   given |<x_r, v~*>| >= gamma

Source: derivations/09_transfer.md.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, ndtri_exp

from gsref.arguments import choice, instance, integer, real, real_array
from gsref.problem import Problem

LAWS = ("gaussian", "rademacher", "uniform")
EDGE = np.sqrt(3.0)                            # a uniform variable on [-EDGE, EDGE] has variance 1
ROUNDING = 1e-12                               # sums of +-v_i that are equal on paper differ by less (relative)


class Patterned:
    """A task of the group-sparsity pattern of its `problem`: d, D and the relevant group are those."""

    @property
    def d(self):
        return self.problem.d

    @property
    def D(self):
        return self.problem.D

    @property
    def relevant(self):
        return self.problem.relevant


@dataclass(frozen=True, eq=False)
class DownstreamTask(Patterned):
    """A task that shares the group-sparsity pattern of `problem`  [transfer.1].

    `problem`: a Problem, of which d, D and the relevant group are used (its direction and sigma are the pretraining's);
    `direction` v~*, shape (d,), unit norm to 1e-8 (it is normalised); `law` one of "gaussian", "rademacher", "uniform",
    all with mean 0 and variance 1; `margin` gamma >= 0, in the unit of a feature: every sample has
    |<x_r, v~*>| >= gamma.
    Raises TypeError or ValueError, naming the argument; among others for a margin that no sample can have.
    """

    problem: Problem
    direction: np.ndarray
    law: str = "gaussian"
    margin: float = 0.0

    def __post_init__(self):
        problem = instance("problem", self.problem, Problem)
        # a Problem validates a direction; only the wording of its errors is needed here
        direction = Problem(problem.d, 1, direction=real_array("direction", self.direction, (problem.d,))).direction
        law, margin = choice("law", self.law, LAWS), real("margin", self.margin, 0.0)
        widest = {"gaussian": np.inf, "rademacher": np.abs(direction).sum(),
                  "uniform": EDGE * np.abs(direction).sum()}[law]
        if margin > widest * (1 + ROUNDING) or (law == "uniform" and margin >= widest):
            raise ValueError(f"margin: got {margin:.9g}, expected {'<' if law == 'uniform' else '<='} {widest:.9g}, the "
                             f"largest |<x_r, direction>| of the {law} law at this direction")
        for name, value in (("direction", direction), ("law", law), ("margin", margin),
                            ("_tilt", _tilt(direction, law, margin) if law != "gaussian" and margin > 0 else 0.0)):
            object.__setattr__(self, name, value)

    @property
    def held_out(self):
        """The task that a model is tested on: this one, since every sample is fresh."""
        return self

    def sample(self, n, rng):
        """n independent samples: X (n, D, d), y (n,) of -1.0 and +1.0; with a margin, exactly from the conditional law.

        `rng` is a numpy.random.Generator.  Raises TypeError or ValueError for a bad n or rng.
        """
        n, rng = integer("n", n), instance("rng", rng, np.random.Generator)
        X = _coordinates(self.law, (n, self.D, self.d), rng)
        if self.margin == 0:
            return X, np.where(X[:, self.relevant] @ self.direction >= 0, 1.0, -1.0)
        y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
        beyond = self._gaussian_beyond if self.law == "gaussian" else self._tilted_beyond
        X[:, self.relevant] = y[:, None] * beyond(n, rng)
        return X, y

    def _gaussian_beyond(self, n, rng):
        """x ~ N(0, I) given <x, v~*> >= gamma, shape (n, d): the tail is inverted, the rest is free  [transfer.2]."""
        v, x = self.direction, rng.standard_normal((n, self.d))
        s = -ndtri_exp(np.log1p(-rng.random(n)) + log_ndtr(-self.margin))
        return x + np.multiply.outer(np.maximum(s, self.margin) - x @ v, v)

    def _tilted_beyond(self, n, rng):
        """x given <x, v~*> >= gamma, shape (n, d), for coordinates of bounded range  [transfer.3].

        Candidates have coordinates of density proportional to exp(lam v_i x_i) times their law; a candidate with
        s = <x, v~*> is kept with probability exp(-lam (s - gamma)) if s >= gamma, else dropped.  Exact for every lam.
        """
        lam, gamma = self._tilt, self.margin
        least = gamma * (1 - ROUNDING) if self.law == "rademacher" else gamma
        kept, size = [], 0
        while size < n:
            count = 2 * (n - size) + 16
            x = _tilted_coordinates(self.law, lam * self.direction, count, rng)
            excess = x @ self.direction - least
            x = x[(excess >= 0) & (rng.random(count) < np.exp(-lam * np.maximum(excess, 0.0)))]
            kept.append(x)
            size += len(x)
        return np.concatenate(kept)[:n]


def _coordinates(law, shape, rng):
    """Independent coordinates of mean 0 and variance 1."""
    if law == "gaussian":
        return rng.standard_normal(shape)
    if law == "rademacher":
        return 2.0 * rng.integers(0, 2, shape) - 1.0
    return EDGE * (2.0 * rng.random(shape) - 1.0)


def _tilted_coordinates(law, theta, n, rng):
    """n rows of independent coordinates, the i-th with density proportional to exp(theta_i x) times the law's."""
    U = rng.random((n, len(theta)))
    if law == "rademacher":
        return np.where(U < expit(2 * theta), 1.0, -1.0)
    size = np.maximum(np.abs(theta), 1e-9)     # below, the tilt changes the density by less than its rounding
    x = EDGE + np.log1p((1.0 - U) * np.expm1(-2 * EDGE * size)) / size
    return np.where(theta < 0, -1.0, 1.0) * np.clip(x, -EDGE, EDGE)


def _tilt(direction, law, margin):
    """The tilt lam at which the mean of <x, v~*> is the margin: it makes the share of kept candidates largest.

    That share is Prob(s >= gamma) divided by its Chernoff bound, inf over lam of E exp(lam (s - gamma)).  If no finite
    tilt reaches the margin (a margin at the edge of the range), a large one serves: every lam is exact.
    """
    v = np.abs(direction)

    def mean(lam):
        if law == "rademacher":
            return v @ np.tanh(lam * v)
        t = EDGE * lam * v
        # the mean of a tilted uniform is EDGE (coth t - 1/t), whose series begins with t/3
        return v @ (EDGE * np.where(t < 1e-3, t / 3, 1 / np.tanh(np.maximum(t, 1e-3)) - 1 / np.maximum(t, 1e-3)))
    top = 1.0
    while mean(top) < margin and top < 1e8:
        top *= 2
    return top if mean(top) <= margin else brentq(lambda lam: mean(lam) - margin, 0.0, top)
