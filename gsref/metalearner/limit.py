"""Where does training on infinitely many tasks go?  To p* Pi, whose classifier it has after one step already.

The loss is convex in W. From zero, population gradient descent stays on W_n = p_n Pi with p_1 > 0, and its limit is
p* Pi, p* the finite root of E[s(-p A) A] = 0. A positive multiple of Pi is one classifier: the projected MLE.
Shapes: p (steps + 1,).  Source: derivations/08_metalearner.md.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from gsref.arguments import instance, integer, real
from gsref.metalearner.population import Order, population
from gsref.metalearner.problem import MetaProblem, context_length


@dataclass(frozen=True)
class Limit:
    """p* with its absolute error, the loss there, and the largest rate for which p_n increases to p*.

    The error is inf where the velocity around p* is below the smallest float (R in the tens).
    """

    p: float
    error: float
    loss: float
    monotone_rate: float


def second_moment(problem, N):
    """E[A^2] = R^2 (E[s^2] R^2 + 1/N) + E[s^2] R^2 + k/N: four times the curvature of the loss in p at p = 0."""
    N = context_length("N", N, instance("problem", problem, MetaProblem).label_noise)
    s, weight = problem.shrinkage_law(N)
    s2, R2 = float(weight @ s ** 2), problem.R ** 2
    return R2 * (s2 * R2 + 1.0 / N) + s2 * R2 + problem.k / N


def limit_of_training(problem, N):
    """The limit of population gradient descent from zero on contexts of N examples: a `Limit`  [meta.9].

    W_n = p_n Pi with p_1 = eta (1 - 2 label_noise) R^2/(2k); p_n increases to the root p* of E[s(-p A) A] = 0
    if eta <= 4k/E[A^2].  Raises TypeError or ValueError.
    """
    def pull(p):
        return population(problem, Order(p), N).velocity.p
    high = 1.0
    while pull(high) > 0.0:
        high *= 2.0
    p, solved = brentq(pull, 0.0, high, xtol=1e-14, rtol=1e-13, full_output=True)
    at = population(problem, Order(p), N)
    step = 1e-3 * p
    slope = (pull(p - step) - pull(p + step)) / (2.0 * step)
    error = at.velocity_error.p / slope + 1e-13 * p if slope > 0.0 else np.inf
    return Limit(p, float(error), at.loss, 4.0 * problem.k / second_moment(problem, N))


def descend_population(problem, eta, steps, N, start=Order(0.0)):
    """Orders (p, q) and losses along `steps` population steps of rate `eta`: arrays (steps + 1, 2) and (steps + 1,)."""
    eta, steps = real("eta", eta, 0.0, open_least=True), integer("steps", steps, 0)
    orders, losses = np.empty((steps + 1, 2)), np.empty(steps + 1)
    order = start
    for n in range(steps + 1):
        value = population(problem, order, N)
        orders[n], losses[n] = (order.p, order.q), value.loss
        order = Order(order.p + eta * value.velocity.p, order.q + eta * value.velocity.q)
    return orders, losses
