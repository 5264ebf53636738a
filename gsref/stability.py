"""Is the symmetric path stable?  Multipliers of a step off the symmetric manifold, and the growth of rounding along it.

One step of gradient descent multiplies a small perturbation by I - eta H, H the second derivative of the population
loss (`second_derivative`, block by block).  The recursion of the order parameters cannot see this; a full-parameter
run can. Source: derivations/10_stability.md.
"""

from dataclasses import dataclass

import numpy as np

from gsref.arguments import choice, instance, real
from gsref.descent import descend
from gsref.order import OrderParameters
from gsref.population import MODES, velocity_scales
from gsref.problem import Problem
from gsref.second_derivative import second_derivative

EPS = float(np.finfo(float).eps)
BROKEN = 1e-3                                  # off the manifold by this share of |(v, W)|: broken
PATH_RTOL, PATH_NODES = 1e-2, 2**15            # of the states along a path in full mode


@dataclass(frozen=True)
class Growth:
    """Rounding along a path; row i belongs to `step[i]`.

    residual (n,): predicted distance from the symmetric manifold; size (n,): |(v, W)|; multiplier (n,), block (n,),
    error (n,): the largest multiplier of the step from there; broken: the first step with residual > BROKEN size, or
    None.
    """

    step: np.ndarray
    residual: np.ndarray
    size: np.ndarray
    multiplier: np.ndarray
    error: np.ndarray
    block: tuple
    broken: int | None


def extreme_multipliers(problem, order, eta, mode="full", rtol=1e-2, seed=0):
    """The lowest and the highest multiplier off the manifold, each as (multiplier, name of its block, absolute error).

    The lowest belongs to the largest curvature: below -1 a perturbation alternates and grows.  The highest is at
    least 1 wherever a direction is neutral or of negative curvature.  `rtol` is of the largest curvature. Raises
    TypeError or ValueError, naming the argument.
    """
    eta = real("eta", eta, 0.0, open_least=True)
    return _extremes(second_derivative(problem, order, mode, rtol=rtol, seed=seed), eta)


def largest_multiplier(problem, order, eta, mode="full", rtol=1e-2, seed=0):
    """(multiplier, name of its block, absolute error) of the largest |1 - eta lambda| off the manifold  [stability.7].

    The sign stays.  A stable state has 1, from neutral directions (see `extreme_multipliers` for what is below).
    """
    return max(extreme_multipliers(problem, order, eta, mode, rtol, seed), key=lambda one: abs(one[0]))


def _extremes(blocks, eta):
    steep = max(blocks, key=lambda block: block.curvatures[-1])
    bent = min(blocks, key=lambda block: block.curvatures[0])
    return ((1 - eta * steep.curvatures[-1], steep.name, eta * steep.error),
            (1 - eta * bent.curvatures[0], bent.name, eta * bent.error))


def _largest(blocks, eta):
    return max(_extremes(blocks, eta), key=lambda one: abs(one[0]))


def describe(problem, path, eta, mode="full", seed=0):
    """Lines for a report on a `Trajectory`: extreme multipliers at three stages, and where rounding breaks it."""
    rows = {"start": 0, "transition": int(np.argmin(np.abs(path.leak - 0.5))), "end": len(path.step) - 1}
    lines = []
    for name, row in rows.items():
        low, high = extreme_multipliers(problem, OrderParameters.from_array(path.order[row]), eta, mode, seed=seed)
        ends = [f"{multiplier:.4g} +- {error:.1g} ({block})" for multiplier, block, error in (low, high)]
        lines.append(f"{name:11s}step {int(path.step[row]):<14,d} multipliers from {ends[0]} to {ends[1]}")
    found = growth(problem, thinned(path), eta, mode, seed=seed)
    if found.broken is not None:
        return [*lines, f"rounding breaks the symmetry of a float64 run at step {found.broken:,} or so"]
    share = found.residual[-1] / max(found.size[-1], EPS)
    return [*lines, f"rounding stays at {share:.1g} of |(v, W)| by step {int(path.step[-1]):,}"]


@dataclass(frozen=True)
class Thinned:
    """Some rows of a path: all that `growth` reads."""

    step: np.ndarray
    order: np.ndarray


def thinned(path, per_decade=16, until=None):
    """The first dozen rows of `path` and then about `per_decade` in each decade of steps, up to the step `until`."""
    last = len(path.step) if until is None else int(np.searchsorted(path.step, until)) + 1
    step = path.step[:last]
    end = max(float(step[-1]), 13.0)
    later = np.geomspace(12, end, max(2, int(per_decade * np.log10(end / 12))))
    wanted = np.concatenate([np.arange(12), np.floor(later)])
    rows = np.unique(np.minimum(np.searchsorted(step, wanted), last - 1))
    return Thinned(step[rows], path.order[:last][rows])


class _Perturbations:
    """Covariance of the perturbation in each block, driven by rounding noise, from step to step  [stability.8].

        C <- (I - eta H) C (I - eta H) + noise^2 I,      residual^2 = sum over blocks of copies trace C
    """

    def __init__(self):
        self.covariance = {}

    def advance(self, blocks, eta, steps, noise):
        """`steps` steps with constant H; returns the residual after them."""
        total = 0.0
        for block in blocks:
            values, basis = np.linalg.eigh(block.matrix)
            mu = 1 - eta * values
            C = basis.T @ self.covariance.get(block.name, np.zeros_like(block.matrix)) @ basis
            with np.errstate(over="ignore", invalid="ignore"):
                grown = mu**steps
                neutral = np.abs(mu**2 - 1) * steps < 1e-8
                geometric = np.where(neutral, float(steps), (grown**2 - 1) / np.where(neutral, 1.0, mu**2 - 1))
                C = np.nan_to_num(grown[:, None] * C * grown, nan=0.0, posinf=1e300, neginf=-1e300)
                C += np.diag(np.minimum(noise**2 * geometric, 1e300))
            self.covariance[block.name] = np.minimum(np.maximum(basis @ C @ basis.T, -1e300), 1e300)
            total += block.copies * min(float(np.trace(C)), 1e300)
        return float(np.sqrt(total))


def size_of(problem, x):
    """|(v, W)| of order parameters x (6,), up to the overlap of m_ro and m_oo."""
    return float(np.linalg.norm(np.asarray(x) / velocity_scales(problem)))


def growth(problem, path, eta, mode="full", blocks=None, until_broken=True, seed=0):
    """How rounding grows along `path` (anything with step (n,) and order (n, 6), as a `Trajectory`), as a `Growth`.

    Each step rounds every component by about EPS |(v, W)|: an order of magnitude, and a factor of ten in it moves the
    predicted step by log 10 / log |multiplier| only.  Between rows that are more than one step apart H is taken as
    constant.  `blocks(order)` gives H (default: `second_derivative` of the law to 3 per cent).
    Ends where the symmetry is broken, unless `until_broken` is False.
    """
    if blocks is None:
        def blocks(order):
            return second_derivative(problem, order, mode, rtol=3e-2, max_nodes=2**14, seed=seed)
    perturbations, rows, residual, broken = _Perturbations(), [], 0.0, None
    for i, step in enumerate(path.step):
        now, size = blocks(OrderParameters.from_array(path.order[i])), size_of(problem, path.order[i])
        rows.append((int(step), residual, size, *_largest(now, eta)))
        if broken is None and residual > BROKEN * size > 0:
            broken = int(step)
            if until_broken:
                break
        if i + 1 < len(path.step):
            noise = EPS * max(size, size_of(problem, path.order[i + 1]))
            residual = perturbations.advance(now, eta, int(path.step[i + 1] - step), noise)
    step, residual, size, multiplier, name, error = zip(*rows)
    return Growth(*map(np.array, (step, residual, size, multiplier, error)), name, broken)


def stable_path(problem, eta, mode, steps=10**9):
    """The path at `eta` until nine tenths of the attention are on the relevant group: past the largest curvature."""
    exact = mode == "full" and steps < 10**5
    return descend(problem, eta, steps, mode, rtol=PATH_RTOL, max_nodes=PATH_NODES,
                   flow=None if exact else 1e-2, per_decade=12, keep=lambda step: step < 10,
                   callback=lambda step, order, found: found.leak < 0.1)


def stable_eta(problem, mode="full", margin=0.95, seed=0):
    """The largest learning rate, times `margin`, at which no multiplier falls below -1 on its path  [stability.9].

    eta = margin 2 / max lambda, the largest curvature along the path of that very eta: found by taking the path at a
    rate that is stable at the start, and repeating with the rate that its curvature allows until that confirms itself.
    Negative curvatures (multipliers above 1) are there at every rate and are not ruled out: they make perturbations
    grow like exp of time eta n, by a bounded factor (`growth` tells it).
    Raises TypeError or ValueError, naming the argument.
    """
    instance("problem", problem, Problem)
    choice("mode", mode, MODES)
    margin = real("margin", margin, 0.0, 1.0, open_least=True)
    eta = margin * 2 / _steepest(problem, OrderParameters(), mode, seed)
    for _ in range(8):
        path = curvature_path(problem, eta, mode)
        worst = max(_steepest(problem, OrderParameters.from_array(x), mode, seed) for x in path)
        if eta * worst <= 2 * margin * (1 + 1e-3):
            return eta
        eta = margin * 2 / worst
    raise ArithmeticError(f"stable_eta: no rate confirmed itself after 8 paths (last {eta:g})")


def curvature_path(problem, eta, mode, rows=20):
    """At most `rows` states of the path at `eta`, evenly spread in mean attention and in log step, (n, 6)."""
    path = stable_path(problem, eta, mode)
    in_time = np.searchsorted(path.step, np.geomspace(1, max(path.step[-1], 2), rows // 2))
    in_leak = [np.argmin(np.abs(path.leak - leak)) for leak in np.linspace(path.leak[-1], path.leak[0], rows // 2)]
    wanted = np.concatenate([in_time, in_leak])
    return path.order[np.unique(np.clip(wanted, 0, len(path.step) - 1))]


def _steepest(problem, order, mode, seed):
    """Upper end of the largest curvature off the manifold."""
    blocks = second_derivative(problem, order, mode, rtol=3e-2, max_nodes=2**12, seed=seed)
    return max(block.curvatures[-1] for block in blocks)
