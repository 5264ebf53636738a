"""How is the attention distributed over inputs, at a point of the symmetric manifold?

In position-only mode it is the same for every input; in full mode it is sampled on scrambled Sobol points.
"""

from dataclasses import dataclass

import numpy as np

from gsref.arguments import choice, instance, integer
from gsref.model import _attention
from gsref.order import OrderParameters, check_fits, position_scores
from gsref.population import MODES, reduced_sample
from gsref.problem import Problem


@dataclass(frozen=True)
class AttentionLaw:
    """mean (D, D): mean attention, key i, query j; leak: mean over inputs and queries of 1 - S[r, j];
    worst_leak: the 99 % quantile over inputs of the largest 1 - S[r, j] of all queries j, so that with probability
    0.99 every query gives the relevant group at least 1 - worst_leak."""

    mean: np.ndarray
    leak: float
    worst_leak: float


def attention_law(problem, order, mode="full", n=4096, seed=0):
    """`AttentionLaw` at `order`, from n inputs (a power of two >= 128; full mode).

    The quantile is the smallest sampled value that 99 % of the inputs do not exceed; its sampling error is that of
    about n/100 inputs in the tail.  Raises TypeError or ValueError, naming the argument.
    """
    instance("problem", problem, Problem)
    check_fits(problem, instance("order", order, OrderParameters))
    choice("mode", mode, MODES)
    if integer("n", n, 128) & (n - 1):
        raise ValueError(f"n: got {n}, expected a power of two >= 128")
    D, r, s = problem.D, problem.relevant, problem.sigma
    if mode == "position_only":
        m, K = np.zeros((1, D)), np.zeros((1, D, D))
    else:
        m, K = reduced_sample(problem, n, seed)
    A = position_scores(problem, order) + order.a * s**2 * m[:, :, None] * m[:, None, :] + order.b * s**2 * K
    S = _attention(A)
    leak = np.delete(S, r, axis=1).sum(axis=1)           # (n, D): 1 - S[r, j] as a sum, so that it does not become 0
    worst = np.sort(leak.max(axis=1))
    return AttentionLaw(S.mean(axis=0), float(leak.mean()), float(worst[int(np.ceil(0.99 * len(worst))) - 1]))
