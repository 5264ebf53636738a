"""What are the loss and the velocity of gradient descent in expectation?

One interface to four rules: closed forms (position-only attention), the exchangeable sparse grid, tensor rules (few
groups) and randomised quasi-Monte Carlo (anything).  Every value comes with an absolute error estimate and the name of
its rule.  Source: derivations/04_population.md and 06_quadrature.md.
"""

from dataclasses import dataclass

import numpy as np

from gsref.arguments import choice, instance, integer, real
from gsref.conditional import reduced_sample, rqmc, tensor
from gsref.exchangeable import ExchangeableGrid, sparse_grid
from gsref.mean_token import Law
from gsref.order import OrderParameters, check_fits, rest_scores
from gsref.position_only import position_attention, position_only
from gsref.problem import Problem

__all__ = ["MODES", "Population", "RULES", "population", "position_attention", "reduced_sample", "velocity_scales"]
MODES = ("full", "position_only")
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
    D, d, kappa = problem.D, problem.d, problem.kappa
    spread = (D - 1) / (D - 2) if D > 2 else 2.0                     # |column|^2 of a unit of m_ro or m_oo
    lengths_squared = [1, 1, max(d - 1, 1), D / max(D - 1, 1) / kappa**2, *2 * [max(D - 1, 1) * spread / kappa**2]]
    return 1 / np.sqrt(np.array(lengths_squared, dtype=float))


def population(problem, order, mode="full", rule="auto", rtol=1e-4, max_nodes=2**22, seed=0):
    """Loss and velocity of population gradient descent at `order`, as a `Population`.

    mode: "full", or "position_only" (W11 stays as it is: velocities of a and b are zero, and a = b = 0 is required).
    rule: "one_dimensional" (position-only mode, D = 1, or sigma alpha, a, b that leave attention fixed),
    "sparse_grid" (full mode, D >= 2), "tensor" (full mode at D = 2, or D = 3 with d <= 2), "rqmc" (full mode, D >= 2),
    or "auto": the cheapest whose own error estimate meets rtol, tried in this order; if none does, the value with the
    smallest error.
    rtol: asked of the loss relative to itself, and of the velocities relative to the largest of them, each divided by
    its `velocity_scales` (units in which the learning rates are equal).  If `max_nodes` evaluations of the integrand do
    not reach it, the best value comes back with its larger error and `converged` False.
    `seed` fixes the randomisation of rqmc.
    Raises TypeError or ValueError, naming the argument.  Source: derivations/04_population.md, 06_quadrature.md.
    """
    instance("problem", problem, Problem)
    check_fits(problem, instance("order", order, OrderParameters))
    choice("mode", mode, MODES)
    choice("rule", rule, RULES)
    rtol = real("rtol", rtol, 0.0, 1.0, open_least=True)
    max_nodes, seed = integer("max_nodes", max_nodes, 1024), integer("seed", seed, 0)
    if mode == "position_only" and (order.a, order.b) != (0.0, 0.0):
        raise ValueError(f"order: got a = {order.a!r}, b = {order.b!r}, expected 0 in position-only mode")
    flat = mode == "position_only" or problem.D == 1
    small = problem.D == 2 or (problem.D == 3 and problem.d <= 2)
    allowed = ("one_dimensional",) if flat else ("sparse_grid", "tensor", "rqmc") if small else ("sparse_grid", "rqmc")
    if rule != "auto" and rule not in allowed:
        raise ValueError(f"rule: got {rule!r}, expected one of auto, {', '.join(allowed)}"
                         f" at mode={mode}, d={problem.d}, D={problem.D}")
    law = _law(problem, order)
    best = None
    for name in (allowed if rule == "auto" else (rule,)):
        result = _evaluate(problem, law, name, rtol, max_nodes, seed)
        if best is None or result[0] < best[0]:
            best = result
        if best[0] <= rtol:
            break
    worst, value, error, n_nodes, name = best
    return Population(float(value[0]), OrderParameters.from_array(value[1:7]), float(error[0]),
                      OrderParameters.from_array(error[1:7]), float(value[7]), name, n_nodes, bool(worst <= rtol))


def _law(problem, order):
    """The order parameters at unit sigma."""
    s = problem.sigma
    return Law(problem.D, problem.d - 1, order.alpha * s, order.a * s**2, order.b * s**2,
               order.m_rr, order.m_ro, order.m_oo, *rest_scores(problem.D, order))


def _evaluate(problem, law, rule, rtol, max_nodes, seed):
    """(worst relative error, value (8,), error (8,), nodes, rule); the relative error is the one that rtol is about."""
    s = problem.sigma
    units = np.array([1.0, s, s**2, s**2, 1.0, 1.0, 1.0, 1.0])             # from unit sigma to that of the problem
    lengths = units[1:7] / velocity_scales(problem)

    def worst(value, error):
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            loss = error[0] / value[0]
            velocity = np.max(error[1:7] * lengths) / np.max(np.abs(value[1:7]) * lengths)
        return max(loss, 0.0 if np.isnan(velocity) else velocity)          # 0/0 where nothing moves is no error

    T, B = position_attention(law.D, law).received(law.D)
    s_irr = abs(law.alpha) * B * np.sqrt(law.D - 1)
    layer = min(1.0, (1.0 + s_irr) / max(abs(law.alpha) * T, 1e-300))      # width over which the loss changes with m_r
    if rule == "one_dimensional":
        value, error = position_only(law.D, law.alpha, law)
        n_nodes = 1
    elif rule == "sparse_grid":
        value, error, n_nodes = sparse_grid(law, layer, s_irr, lengths, worst, rtol, max_nodes)
    elif rule == "tensor":
        value, error, n_nodes = tensor(law, layer, lambda v, e: worst(v, e) <= rtol, max_nodes)
    else:
        grid = ExchangeableGrid(law, layer, s_irr, lengths)
        expected, rough = grid.feature_term(0, 8).value, grid.feature_term(0, 7).value
        known = np.all(np.abs(expected - rough)[:7] <= 1e-9 * grid.scale(expected)[:7])  # else of no use for sampling
        value, error, n_nodes = rqmc(law, layer, lambda v, e: worst(v, e) <= rtol, max_nodes, seed, expected if known else None)
    if law.D == 2:                             # one irrelevant group: the two velocities are one and the same
        value[6], error[6] = -value[5], error[5]
    return worst(value, error), value * units, error * units, int(n_nodes), rule
