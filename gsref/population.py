"""What are the loss and the velocity of gradient descent in expectation?

One interface to four rules: closed forms (position-only attention), the exchangeable sparse grid, tensor rules (few
groups) and randomised quasi-Monte Carlo (anything).  Every value comes with an absolute error estimate and the name of
its rule.  Source: derivations/04_population.md and 06_quadrature.md.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gsref.arguments import choice, instance, integer, real
from gsref.conditional import MOST_SAMPLED, reduced_sample, rqmc, tensor
from gsref.exchangeable import ExchangeableGrid, sparse_grid
from gsref.mean_token import Law
from gsref.order import OrderParameters, check_fits, rest_scores
from gsref.position_only import NODES, position_attention, position_only
from gsref.problem import Problem

__all__ = ["MODES", "Population", "RULES", "population", "position_attention", "reduced_sample", "velocity_scales"]
MODES = ("full", "position_only")
LARGEST = 1e100                                # of sigma, 1/sigma, scores and logits: beyond, products leave float64
RULES = ("auto", "one_dimensional", "sparse_grid", "tensor", "rqmc")


@dataclass(frozen=True)
class Population:
    """Loss and velocity in expectation.

    `velocity` is the change of the order parameters per unit learning rate: one step of gradient descent is
    `order + eta * velocity`.  `loss_error` and `velocity_error` estimate the absolute errors.  `leak` is the mean over
    inputs and queries of 1 - S[r, j], the attention that leaks to irrelevant groups; `attention` is 1 - leak.
    `converged` says whether the errors meet the rtol that was asked for.
    """

    loss: float
    velocity: OrderParameters
    loss_error: float
    velocity_error: OrderParameters
    leak: float
    rule: str
    n_nodes: int
    converged: bool

    @property
    def attention(self):
        return 1.0 - self.leak


def velocity_scales(problem):
    """Units of the six scalars in which their learning rates are equal, shape (6,)  [population.7].

    Gradient descent moves (v, W) by eta times the Euclidean gradient.  A unit of a scalar moves (v, W) by some length
    l; measured in units of 1/l all six have the same learning rate, and the velocity is as long as that of (v, W)
    (up to the small overlap of m_ro and m_oo).
    """
    return 1 / np.array(_lengths(problem.d, problem.D))


@lru_cache(maxsize=256)
def _lengths(d, D):
    kappa = (D + 1) / 2
    spread = (D - 1) / (D - 2) if D > 2 else 2.0                     # |column|^2 of a unit of m_ro or m_oo
    column = math.sqrt(max(D - 1, 1) * spread) / kappa
    return 1.0, 1.0, math.sqrt(max(d - 1, 1)), math.sqrt(D / max(D - 1, 1)) / kappa, column, column


def population(problem, order, mode="full", rule="auto", rtol=1e-4, max_nodes=2**22, seed=0):
    """Loss and velocity of population gradient descent at `order`, as a `Population`.

    mode: "full", or "position_only" (W11 stays as it is: velocities of a and b are zero, and a = b = 0 is required).
    rule: "one_dimensional" (position-only mode, or D = 1: closed forms),
    "sparse_grid" (full mode, D >= 2), "tensor" (full mode at D = 2, or D = 3 with d <= 2), "rqmc" (full mode, D from 2 to
    1024),
    or "auto": the cheapest whose own error estimate meets rtol, tried in this order; if none does, the value with the
    smallest error.
    rtol: asked of the loss relative to itself, and of the velocities relative to the largest of them, each divided by
    its `velocity_scales` (units in which the learning rates are equal).  If `max_nodes` evaluations of the integrand do
    not reach it, the best value comes back with its larger error and `converged` False.
    `seed` fixes the randomisation of rqmc.
    Raises TypeError or ValueError, naming the argument; OverflowError, naming it, if sigma, 1/sigma, or one of alpha
    sigma, a sigma^2, b sigma^2, m_rr, m_ro, m_oo exceeds 1e100.  Source: derivations/04_population.md, 06_quadrature.md.
    """
    instance("problem", problem, Problem)
    check_fits(problem, instance("order", order, OrderParameters))
    _check_range(problem.sigma, order)
    choice("mode", mode, MODES)
    choice("rule", rule, RULES)
    rtol = real("rtol", rtol, 0.0, 1.0, open_least=True)
    max_nodes, seed = integer("max_nodes", max_nodes, 1024), integer("seed", seed, 0)
    if mode == "position_only" and (order.a, order.b) != (0.0, 0.0):
        raise ValueError(f"order: got a = {order.a!r}, b = {order.b!r}, expected 0 in position-only mode")
    flat = mode == "position_only" or problem.D == 1
    small = problem.D == 2 or (problem.D == 3 and problem.d <= 2)
    sampled = ("rqmc",) if problem.D <= MOST_SAMPLED else ()
    allowed = ("one_dimensional",) if flat else ("sparse_grid", *(("tensor",) if small else ()), *sampled)
    if rule != "auto" and rule not in allowed:
        raise ValueError(f"rule: got {rule!r}, expected one of auto, {', '.join(allowed)}"
                         f" at mode={mode}, d={problem.d}, D={problem.D}")
    s = problem.sigma
    units = (1.0, s, s * s, s * s, 1.0, 1.0, 1.0, 1.0)                     # from unit sigma to that of the problem
    lengths = tuple(unit * length for unit, length in zip(units[1:], _lengths(problem.d, problem.D)))
    if flat:
        value, error = position_only(problem.D, order.alpha * s, order)
        found = _worst(value, error, lengths), value, error, NODES, "one_dimensional"
    else:
        reduced, found = reduced_law(problem, order), None
        for name in (allowed if rule == "auto" else (rule,)):
            new = _evaluate(reduced, lengths, name, rtol, max_nodes, seed)
            if found is None or new[0] < found[0]:
                found = new
            if found[0] <= rtol:
                break
    worst, value, error, n_nodes, name = found
    if problem.D == 2:                         # one irrelevant group: the two velocities are one and the same
        value[6], error[6] = -value[5], error[5]
    value, error = ([float(x * unit) for x, unit in zip(numbers, units)] for numbers in (value, error))
    return Population(value[0], OrderParameters(*value[1:7]), error[0], OrderParameters(*error[1:7]), value[7], name,
                      n_nodes, bool(worst <= rtol))


def _check_range(s, order):
    """OverflowError, naming the argument, if a number that the rules work with is beyond LARGEST."""
    if not 1 / LARGEST <= s <= LARGEST:
        raise OverflowError(f"problem.sigma: got {s:g}, expected from {1 / LARGEST:g} to {LARGEST:g}")
    for name, unit, text in (("alpha", s, " sigma"), ("a", s * s, " sigma^2"), ("b", s * s, " sigma^2"),
                             ("m_rr", 1.0, ""), ("m_ro", 1.0, ""), ("m_oo", 1.0, "")):
        size = abs(getattr(order, name)) * unit
        if size > LARGEST:
            raise OverflowError(f"order.{name}: got |{name}|{text} = {size:g}, expected at most {LARGEST:g}")


def _worst(value, error, lengths):
    """The relative error that rtol is about; infinite where an error stands beside nothing."""
    moved = max(abs(v) * length for v, length in zip(value[1:7], lengths))
    missed = max(e * length for e, length in zip(error[1:7], lengths))
    velocity = missed / moved if moved else (math.inf if missed else 0.0)
    return max(error[0] / value[0] if value[0] else math.inf, velocity)


def reduced_law(problem, order):
    """What the rules need, at unit sigma: the `Law`, the width over which the loss changes with the relevant feature,
    and the standard deviation of the part of f that the irrelevant groups contribute."""
    s, D = problem.sigma, problem.D
    law = Law(D, problem.d - 1, order.alpha * s, order.a * s**2, order.b * s**2, order.m_rr, order.m_ro, order.m_oo,
              *rest_scores(D, order))
    T, B = position_attention(D, law).received(D)
    s_irr = abs(law.alpha) * B * math.sqrt(D - 1)
    layer = min(1.0, (1.0 + s_irr) / max(abs(law.alpha) * T, 1e-300))
    return law, layer, s_irr


def _evaluate(reduced, lengths, rule, rtol, max_nodes, seed):
    """(worst relative error, value (8,), error (8,), nodes, rule) at unit sigma."""
    law, layer, s_irr = reduced

    def worst(value, error):
        return _worst(value.tolist(), error.tolist(), lengths)

    def met(value, error):
        return worst(value, error) <= rtol

    if rule == "sparse_grid":
        value, error, n_nodes = sparse_grid(law, layer, s_irr, np.array(lengths), worst, rtol, max_nodes)
    elif rule == "tensor":
        def share(error):
            largest = np.max(error[1:7] * lengths)
            return np.array([0.0, *(largest / np.array(lengths)), 0.0])
        value, error, n_nodes = tensor(law, layer, met, max_nodes, share)
    else:
        control = ExchangeableGrid(law, layer, s_irr, np.array(lengths)).control()
        value, error, n_nodes = rqmc(law, layer, met, max_nodes, seed, control)
    return worst(value, error), value, error, int(n_nodes), rule
