"""What are loss, velocity and accuracy with infinitely many tasks?  One contour integral each, at any d and k.

By symmetry the population path from zero stays in W = p Pi + q (I - Pi).  There the margin is t = p A + q T, with
A = <Pi muhat, Pi x y> and T = <(I - Pi) muhat, (I - Pi) x y>, and its moment generating function is elementary.
An expectation of a function with a known Laplace transform is then an integral along a vertical line in the plane,
through the saddle point of its integrand, where the trapezoidal rule in a sinh-scaled variable converges
exponentially.  Relative accuracy is kept even where the result is 1e-200.

Shapes: z (n,) complex, s, weight (S,) shrinkage of the context mean by flipped labels and its probability.
Source: derivations/08_metalearner.md.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from gsref.arguments import choice, instance, real
from gsref.metalearner import radial
from gsref.metalearner.problem import MetaProblem, context_length

EPS = np.finfo(float).eps


@dataclass(frozen=True)
class Order:
    """W = p Pi + q (I - Pi)."""

    p: float
    q: float = 0.0

    def to_matrix(self, problem):
        """W, shape (d, d)."""
        Pi = problem.projector
        return self.p * Pi + self.q * (np.eye(problem.d) - Pi)

    @staticmethod
    def from_matrix(W, problem):
        """(order, residual): the nearest W of this form, and the Frobenius norm of the rest."""
        Pi, d, k = problem.projector, problem.d, problem.k
        p = float(np.sum(W * Pi)) / k
        q = (float(np.trace(W)) - p * k) / (d - k) if d > k else 0.0
        order = Order(p, q)
        return order, float(np.linalg.norm(W - order.to_matrix(problem)))


@dataclass(frozen=True)
class PopulationValue:
    """Loss and velocity (an `Order`: the change per unit learning rate), their absolute errors, the rule's name."""

    loss: float
    velocity: Order
    loss_error: float
    velocity_error: Order
    rule: str
    n_nodes: int


def _log_mgf(z, p, q, problem, N, s):
    """log K(z),  K(z) = E exp(-z t) at W = p Pi + q (I - Pi) and given s, shape (S, n), and d(log K)/dp  [meta.6].

    log K = -(k/2) log P - ((d-k)/2) log Q + R^2 [(s^2 + 1/N) p^2 z^2/2 - s p z] / P,
    P = 1 - p^2 z^2/N,  Q = 1 - q^2 z^2/N;  it exists for |Re z| max(|p|, |q|) < sqrt(N).
    """
    k, off, R = problem.k, problem.d - problem.k, problem.R
    s = s[:, None]
    P, Q = 1.0 - (p * z) ** 2 / N, 1.0 - (q * z) ** 2 / N
    bracket = (s ** 2 + 1.0 / N) * (p * z) ** 2 / 2.0 - s * p * z
    log_K = -(k / 2) * np.log(P) - (off / 2) * np.log(Q) + R ** 2 * bracket / P
    slope = k * p * z ** 2 / N + R ** 2 * ((s ** 2 + 1.0 / N) * p * z ** 2 - s * z + 2.0 * bracket * p * z ** 2 / (N * P))
    return log_K, slope / P


def _log_logistic_kernel(z):
    """log[pi / (z sin(pi z))] for 0 < Re z < 1, Im z >= 0: the Laplace transform of log(1 + exp(-t))  [meta.7].

    1/sin w = -2i exp(iw) / (1 - exp(2iw)) neither overflows nor loses digits in the upper half plane.
    """
    w = np.pi * z
    return math.log(np.pi) - np.log(z) + np.log(-2j) + 1j * w - np.log(-np.expm1(2j * w))


def _contour(log_f, most, factors, rtol=1e-13, n_most=1 << 13):
    """(1/(2 pi i)) int f(z) g(z) dz along Re z = c, for f = exp(log_f) and each g of `factors(z)`.

    f must be positive and log-convex on (0, most) and conjugate-symmetric; c is its minimum there.  On z = c + i y,
    y = w sinh(u) with w the width of the peak of f, the trapezoidal rule in u converges exponentially: the difference
    from half as many nodes is the error of the coarser rule, and a safe bound for the finer one.
    Returns values (m,), errors (m,), number of nodes.
    """
    def real_f(place):                         # place in the log-odds of c in (0, most): one scale for both ends
        return log_f(np.array([most / (1.0 + math.exp(-place)) + 0j]))[0].real.item()
    place = minimize_scalar(real_f, bounds=(-60.0, 30.0), method="bounded", options={"xatol": 1e-3}).x
    c = most / (1.0 + math.exp(-place))
    room = min(c, most - c)
    step = 0.03 * room
    around = log_f(c + step * np.array([-1.0, 0.0, 1.0]) + 0j).real
    curvature = (around[0] - 2.0 * around[1] + around[2]) / step ** 2
    w = min(room, 1.0 / math.sqrt(curvature)) if curvature > 0 else room

    def line(u):
        z = c + 1j * w * np.sinh(u)
        return z, log_f(z) + np.log(w * np.cosh(u))
    u = np.arange(0.0, 60.0, 0.25)
    size = line(u)[1].real
    end = u[np.flatnonzero(size > size.max() - 45.0)[-1]] + 0.25
    scale, n, before = float(around[1]), 32, None
    while True:
        u = np.linspace(0.0, end, n + 1)
        z, log_size = line(u)
        weight = np.full(n + 1, end / n)
        weight[0] /= 2.0
        f = np.exp(log_size - scale) * weight / np.pi
        terms = f * factors(z)                                                    # (m, n + 1)
        value = terms.real.sum(axis=1)
        # rounding: each exponent carries about EPS times its own size
        rounding = 8.0 * EPS * (np.abs(terms) * (8.0 + np.abs(log_size - scale) + abs(scale))).sum(axis=1)
        if before is not None:
            error = np.abs(value - before) + rounding
            if (error <= rtol * np.abs(value) + rounding).all() or n >= n_most:
                return math.exp(scale) * value, math.exp(scale) * error, n + 1
        n, before = 2 * n, value


def _most(p, q, N):
    """The right end of the strip in which K exists."""
    size = max(abs(p), abs(q))
    return math.sqrt(N) / size if size > 0 else math.inf


def _mixture(z, p, q, problem, N):
    """log K(z) averaged over s, and the averages d(log K)/dp and d(log K)/dq."""
    s, weight = problem.shrinkage_law(N)
    log_K, slope = _log_mgf(z, p, q, problem, N, s)
    slope_q = (problem.d - problem.k) * q * z ** 2 / (N - (q * z) ** 2)
    if len(s) == 1:
        return log_K[0], slope[0], slope_q
    top = log_K.real.max(axis=0)
    parts = weight[:, None] * np.exp(log_K - top)
    total = parts.sum(axis=0)
    return top + np.log(total), (parts * slope).sum(axis=0) / total, slope_q


def population(problem, order, N, rule="contour"):
    """Loss and velocity at W = p Pi + q (I - Pi), contexts of N examples: a `PopulationValue`  [meta.5].

    -dL/dW = E[c A]/k Pi + E[c T]/(d - k) (I - Pi), so a step of rate eta is p += eta E[c A]/k, q += eta E[c T]/(d-k);
    with the kernel of `_log_logistic_kernel`,  L = int kernel K,  E[c A] = -int kernel dK/dp,  E[c T] = -int kernel dK/dq.
    `rule`: "contour" (any d, k) or "radial" (an independent product rule over the radial variables).
    N may be any positive number when no label is flipped.  Raises TypeError or ValueError.
    """
    instance("order", order, Order)
    instance("problem", problem, MetaProblem)
    p, q, N = real("p", order.p), real("q", order.q), context_length("N", N, problem.label_noise)
    if choice("rule", rule, ("contour", "radial")) == "radial":
        value, error, n = radial.expectations(problem, p, q, N)
    else:
        def log_f(z):
            return _log_logistic_kernel(z) + _mixture(z, p, q, problem, N)[0]

        def factors(z):
            _, slope_p, slope_q = _mixture(z, p, q, problem, N)
            return np.stack([np.ones_like(z), -slope_p, -slope_q])
        value, error, n = _contour(log_f, min(1.0, _most(p, q, N)), factors)
    k, off = problem.k, max(problem.d - problem.k, 1)
    return PopulationValue(float(value[0]), Order(float(value[1]) / k, float(value[2]) / off), float(error[0]),
                           Order(float(error[1]) / k, float(error[2]) / off), rule, n)


def error_rate(problem, order, M, rule="contour"):
    """P(t < 0) of a query at W = p Pi + q (I - Pi) after M examples: (value, absolute error).

    P(t < 0) = (1/(2 pi i)) int K(z)/z dz, Re z > 0; 1/2 at W = 0.  Only the ratio of p and q matters.
    M may be any positive number when no label is flipped.  Raises TypeError or ValueError.
    """
    instance("order", order, Order)
    instance("problem", problem, MetaProblem)
    p, q, M = real("p", order.p), real("q", order.q), context_length("M", M, problem.label_noise)
    size = max(abs(p), abs(q if problem.d > problem.k else 0.0))
    if size == 0.0:
        return 0.5, 0.0
    p, q = p / size, q / size
    if choice("rule", rule, ("contour", "radial")) == "radial":
        return radial.error_rate(problem, p, q, M)

    def log_f(z):
        return _mixture(z, p, q, problem, M)[0] - np.log(z)
    value, error, _ = _contour(log_f, _most(p, q, M), lambda z: np.ones((1, len(z))))
    return float(value[0]), float(error[0])
