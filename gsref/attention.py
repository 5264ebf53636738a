"""How is the attention distributed over inputs, at a point of the symmetric manifold?

In position-only mode it is the same for every input; in full mode it is sampled on scrambled Sobol points.
"""

from dataclasses import dataclass

import numpy as np

from gsref.arguments import choice, instance, integer
from gsref.model import _attention
from gsref.order import OrderParameters, check_fits, position_scores
from gsref.population import MODES, position_attention, reduced_sample
from gsref.problem import Problem


@dataclass(frozen=True)
class AttentionLaw:
    """leak: mean over inputs and queries of 1 - S[r, j]; worst_leak: the 99 % quantile over inputs of the largest
    1 - S[r, j] of all queries j, so that in 99 % of the inputs every query gives the relevant group 1 - worst_leak."""

    leak: float
    worst_leak: float


def attention_law(problem, order, mode="full", n=4096, seed=0):
    """`AttentionLaw` at `order`, from n inputs (a power of two >= 128; full mode only, else exact).

    The quantile is the smallest sampled value that 99 % of the inputs do not exceed; its sampling error is that of
    about n/100 inputs in the tail.  Raises TypeError or ValueError, naming the argument.
    """
    _check(problem, order, mode, n)
    D, r = problem.D, problem.relevant
    if mode == "position_only" or D == 1:
        *_, leak_r, leak_j = position_attention(D, order)
        return AttentionLaw(float(leak_r + (D - 1) * leak_j) / D, float(max(leak_r, leak_j)))
    S = _sampled_attention(problem, order, n, seed)
    leak = np.delete(S, r, axis=1).sum(axis=1)           # (n, D): 1 - S[r, j] as a sum, so that it does not become 0
    worst = np.sort(leak.max(axis=1))
    return AttentionLaw(float(leak.mean()), float(worst[int(np.ceil(0.99 * len(worst))) - 1]))


def mean_attention(problem, order, mode="full", n=4096, seed=0):
    """Mean attention over inputs, shape (D, D), key i, query j; arguments and errors as `attention_law`."""
    _check(problem, order, mode, n)
    if mode == "position_only":
        return _attention(position_scores(problem, order)[None])[0]
    return _sampled_attention(problem, order, n, seed).mean(axis=0)


def _check(problem, order, mode, n):
    instance("problem", problem, Problem)
    check_fits(problem, instance("order", order, OrderParameters))
    choice("mode", mode, MODES)
    if integer("n", n, 128) & (n - 1):
        raise ValueError(f"n: got {n}, expected a power of two >= 128")


def _sampled_attention(problem, order, n, seed):
    m, K = reduced_sample(problem, n, seed)
    a, b = order.a * problem.sigma**2, order.b * problem.sigma**2
    return _attention(position_scores(problem, order) + a * m[:, :, None] * m[:, None, :] + b * K)
