"""What are the loss and the velocity of gradient descent in expectation?

With x = <v*, .>/sigma of each token, K the Gram matrix of the orthogonal parts in units of sigma^2, the label flipped
to +1, and the irrelevant groups written first in the sums over keys (D - 1 = k of them):

    Shapes of one evaluation: N points of the irrelevant groups, Q nodes of the relevant one
        m_r (Q,)   m (N, k)   K_oo (N, k, k)   K_ro (N, k)   K_rr (N,)   everything conditional: (N, k, Q) or (N, Q)

Source: derivations/04_population.md.  Every value comes with an absolute error estimate and the name of its rule.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaincinv, ndtr, stdtrit

from gsref.arguments import choice, instance, integer, real
from gsref.model import logistic_loss
from gsref.order import OrderParameters, check_fits, rest_scores
from gsref.problem import Problem
from gsref.quadrature import (chi_square_rule, cosine_rule, half_normal_rule, log_rule, normal_rule, sobol_normals)

MODES = ("full", "position_only")
RULES = ("auto", "one_dimensional", "tensor", "rqmc")


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
    rule: "one_dimensional" (position-only mode, or D = 1), "tensor" (full mode at D = 2, or D = 3 with d <= 2),
    "rqmc" (full mode), or "auto" (the first of these that applies).
    rtol: asked of the loss relative to itself, and of the velocities relative to the largest of them, each divided by
    its `velocity_scales`.  If `max_nodes` evaluations do not reach it, the best value comes back with its larger error
    and `converged` False.  `seed` fixes the scrambling of rqmc.
    Raises TypeError or ValueError, naming the argument.  Source: derivations/04_population.md.
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
    allowed = ("one_dimensional",) if flat else ("tensor", "rqmc") if small else ("rqmc",)
    if rule == "auto":
        rule = allowed[0]
    elif rule not in allowed:
        raise ValueError(f"rule: got {rule!r}, expected one of auto, {', '.join(allowed)}"
                         f" at mode={mode}, d={problem.d}, D={problem.D}")
    if rule == "one_dimensional":
        return _one_dimensional(problem, order, rtol)
    value, error, n_nodes = (_tensor if rule == "tensor" else _rqmc)(problem, order, rtol, max_nodes, seed)
    if problem.D == 2:                         # one irrelevant group: the two velocities are one and the same
        value[6], error[6] = -value[5], error[5]
    return _result(problem, value, error, value[7], rtol, rule, n_nodes)


# ---- position-only: attention is not random, f is skew-normal, everything is a one-dimensional integral

def position_attention(D, order):
    """The five attentions (S_rr, S_ir, S_rj, S_jj, S_ij) that positions alone give, and the leaks 1 - S_rr, 1 - S_rj.

    Key first, query second; i and j irrelevant, i != j.  No leak is computed as one minus something  [population.1].
    """
    m_or, m_ox = rest_scores(D, order)
    k = D - 1
    top = max(order.m_rr, m_or)
    e_r, e_o = np.exp(order.m_rr - top), np.exp(m_or - top)
    total = e_r + k * e_o
    S_rr, S_or, leak_r = e_r / total, e_o / total, k * e_o / total
    if D == 1:
        return S_rr, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    top = max(order.m_ro, order.m_oo, m_ox) if D > 2 else max(order.m_ro, order.m_oo)
    e_r, e_j, e_i = np.exp(order.m_ro - top), np.exp(order.m_oo - top), (np.exp(m_ox - top) if D > 2 else 0.0)
    rest = e_j + (D - 2) * e_i
    total = e_r + rest
    return S_rr, S_or, e_r / total, e_j / total, e_i / total, leak_r, rest / total


def _skew_normal_integrals(omega, T, q):
    """E[loss(f)], E[c m_r], E[s s'] for f = omega x, x skew-normal of slope T/q (unit sigma), and their errors.

    f = alpha (T m_r + q z), m_r half-normal, z normal, omega = |alpha| hypot(T, q)  [population.2].  All integrands are
    positive, and the two half-lines are folded on one.
    """
    rho = np.hypot(T, q)
    T, q = T / rho, q / rho
    smallest = min(1.0, 1.0 / omega) if omega > 0 else 1.0
    # below 1e-9 of the next scale the boundary layer of width q/T carries less than rounding
    scale = min(smallest, max(q / T, 1e-9 * smallest))
    x, w = log_rule(float(np.ceil(10 * np.log10(10.0 / scale)) / 10))
    x, w = scale * x, scale * w
    w = w * np.sqrt(2 / np.pi) * np.exp(-0.5 * x * x)
    f = omega * x
    with np.errstate(over="ignore"):           # q may be 0 or tiny: ndtr and exp of infinities are right
        z = x * np.divide(T, q) if q > 0 else np.full_like(x, np.inf)
        bump = q * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    above, below = ndtr(z), ndtr(-z)
    c = expit(-f)
    terms = np.stack([
        np.log1p(np.exp(-f)) + f * below,
        c * (T * x * above + bump) + (1 - c) * np.maximum(bump - T * x * below, 0.0),
        c * (1 - c)])
    fine = terms @ w
    coarse = 2 * (terms[:, ::2] @ w[::2])
    # halving the step squares the relative error; 32 units in the last place for the sums and special functions
    return fine, fine * (10 * (coarse / fine - 1) ** 2 + 32 * np.finfo(float).eps)


def _one_dimensional(problem, order, rtol):
    """Position-only loss and velocity  [population.3]."""
    D, s, k = problem.D, problem.sigma, problem.D - 1
    S_rr, S_or, S_rj, S_jj, S_ij, leak_r, leak_j = position_attention(D, order)
    T = S_rr + k * S_rj                        # attention that the relevant group receives, and one irrelevant group
    B = S_or + S_jj + (D - 2) * S_ij if D > 1 else 0.0
    alpha = abs(order.alpha)                   # alpha < 0 is the flipped label: loss(f) = loss(-f) + f, c(f) = 1 - c(-f)
    omega = alpha * s * np.hypot(T, B * np.sqrt(k))
    (loss, c_r, dc), (loss_e, c_r_e, dc_e) = _skew_normal_integrals(omega, T, B * np.sqrt(k))
    c_o, c_o_e = -alpha * s * B * dc, alpha * s * B * dc_e      # E[c m_o], Stein's lemma: E[c m_o] = s df/dm_o E[c']
    if order.alpha < 0:
        mean_r = np.sqrt(2 / np.pi)
        loss, c_r, c_o = loss + alpha * s * T * mean_r, mean_r - c_r, -c_o
    gain, gain_e = s * order.alpha * problem.kappa**2 * (c_r - c_o), s * alpha * problem.kappa**2 * (c_r_e + c_o_e)
    velocity = [s * (T * c_r + k * B * c_o), 0.0, 0.0, gain * S_rr * leak_r, gain * S_rj * leak_j, -gain * S_jj * S_rj]
    error = [s * (T * c_r_e + k * B * c_o_e), 0.0, 0.0, *(gain_e * share for share in
                                                         (S_rr * leak_r, S_rj * leak_j, S_jj * S_rj))]
    if D == 2:
        velocity[5], error[5] = -velocity[4], error[4]
    value, error = np.array([loss, *velocity]), np.array([loss_e, *error])
    return _result(problem, value, error, (leak_r + k * leak_j) / D, rtol, "one_dimensional", 1)


# ---- full mode: one conditional evaluation, three ways to choose its points

def _conditional_sums(problem, order, m_r, w_r, m, K_oo, K_ro, K_rr):
    """(loss, six velocities, leak) at each of N points of the irrelevant groups, averaged over the relevant one.

    m_r, w_r (Q,) nodes and weights; m (N, k), K_oo (N, k, k), K_ro (N, k), K_rr (N,); all in units of sigma.
    Returns (N, 8).  The other keys of a query do not depend on m_r: their sums are taken once, and each node of m_r
    costs O(k) exponentials  [population.4] [population.5].
    """
    D, k, s = problem.D, problem.D - 1, problem.sigma
    alpha, a, b = order.alpha * s, order.a * s**2, order.b * s**2
    m_or, m_ox = rest_scores(D, order)
    diagonal = np.arange(k)

    # column j of an irrelevant query, over irrelevant keys i only: weights, mean, variance of m; mean, covariance of K
    A = a * m[:, :, None] * m[:, None, :] + b * K_oo + m_ox
    A[:, diagonal, diagonal] += order.m_oo - m_ox
    top = A.max(axis=1)
    E = np.exp(A - top[:, None, :])
    total = E.sum(axis=1)
    E /= total[:, None, :]
    mean = np.einsum("nij,ni->nj", E, m)
    K_mean = np.einsum("nij,nij->nj", E, K_oo)
    apart = m[:, :, None] - mean[:, None, :]
    variance = np.einsum("nij,nij->nj", E, apart**2)
    covariance = np.einsum("nij,nij,nij->nj", E, apart, K_oo)
    own, own_apart = E[:, diagonal, diagonal], m - mean

    # the relevant key joins: S_rj is a logistic function of its score against the log-sum of the others
    gap = (order.m_ro + b * K_ro - top - np.log(total))[:, :, None] + (a * m)[:, :, None] * m_r       # (N, k, Q)
    S, leak = expit(gap), expit(-gap)
    lead = m_r - mean[:, :, None]
    pull = S * leak * lead                     # G[r, j] / alpha

    # column r, over irrelevant keys
    A_r = (a * m[:, :, None] * m_r) + (b * K_ro + m_or)[:, :, None]
    top_r = A_r.max(axis=1)
    E_r = np.exp(A_r - top_r[:, None, :])
    total_r = E_r.sum(axis=1)
    E_r /= total_r[:, None, :]
    mean_r = np.einsum("niq,ni->nq", E_r, m)
    apart_r = m[:, :, None] - mean_r[:, None, :]
    variance_r = np.einsum("niq,niq->nq", E_r, apart_r**2)
    K_mean_r = np.einsum("niq,ni->nq", E_r, K_ro)
    covariance_r = np.einsum("niq,niq,ni->nq", E_r, apart_r, K_ro)
    gap_r = a * m_r**2 + (b * K_rr)[:, None] + order.m_rr - top_r - np.log(total_r)                      # (N, Q)
    S_r, leak_r = expit(gap_r), expit(-gap_r)
    lead_r = m_r - mean_r
    pull_r = S_r * leak_r * lead_r

    spread = np.einsum("nj,njq->nq", m, pull * lead + leak * variance[:, :, None])
    spread_r = m_r * (pull_r * lead_r + leak_r * variance_r)
    turn = (pull * (K_ro - K_mean)[:, :, None] + leak * covariance[:, :, None]).sum(axis=1)
    turn_r = pull_r * (K_rr[:, None] - K_mean_r) + leak_r * covariance_r
    g = (mean[:, :, None] + S * lead).sum(axis=1) + mean_r + S_r * lead_r                                # f / alpha
    f = alpha * g
    c = expit(-f) * w_r
    columns = [
        logistic_loss(f) @ w_r,
        s * np.einsum("nq,nq->n", c, g),
        s**2 * alpha * np.einsum("nq,nq->n", c, spread + spread_r),
        s**2 * alpha * np.einsum("nq,nq->n", c, turn + turn_r) / max(problem.d - 1, 1),
        problem.kappa**2 * alpha * np.einsum("nq,nq->n", c, pull_r),
        problem.kappa**2 * alpha * np.einsum("nq,nq->n", c, pull.sum(axis=1)) / k,
        problem.kappa**2 * alpha * np.einsum("nq,nq->n", c, np.einsum(
            "nj,njq->nq", own, leak * (own_apart[:, :, None] - S * lead))) / k,
        (leak.sum(axis=1) + leak_r) @ w_r / D]
    return np.stack(columns, axis=1)


def _blocked_sums(problem, order, m_r, w_r, points):
    """`_conditional_sums` of points = (m, K_oo, K_ro, K_rr), in chunks whose largest temporary is about 1 MB."""
    k, N = problem.D - 1, len(points[0])
    chunk = max(1, int(2**17 / (k * max(k, len(m_r)))))
    return np.concatenate([_conditional_sums(problem, order, m_r, w_r, *(part[i:i + chunk] for part in points))
                           for i in range(0, N, chunk)])


def _layer(problem, order):
    """Width, in units of sigma, over which the loss changes with the relevant feature: 1/(T |alpha| sigma), at most 1."""
    S_rr, _, S_rj, *_ = position_attention(problem.D, order)
    slope = (S_rr + (problem.D - 1) * S_rj) * abs(order.alpha) * problem.sigma
    return 1.0 / max(slope, 1.0)


def _gram(w):
    """Gram matrices, split into (others, others), (relevant, others), (relevant, relevant), of w (N, D, d-1)."""
    K = w @ w.transpose(0, 2, 1)
    return K[:, 1:, 1:], K[:, 0, 1:], K[:, 0, 0]


def _tensor(problem, order, rtol, max_nodes, seed):
    """Tensor rule over every scalar of the irrelevant groups; the error is the difference from a rougher rule."""
    def value(n, Q):
        points, weights = _tensor_points(problem.d, problem.D, n)
        return weights @ _blocked_sums(problem, order, *half_normal_rule(Q, _layer(problem, order)), points)

    dimension = _tensor_dimension(problem.d, problem.D)
    n, Q, cost = 8, 24, 0
    while True:
        fine, rough = value(n, Q), value(n - 3, Q - 8)
        cost += n**dimension * Q + (n - 3)**dimension * (Q - 8)
        error = np.abs(fine - rough)
        if _met(problem, fine, error, rtol) or cost + (n + 4)**dimension * (Q + 12) > max_nodes:
            return fine, error, cost
        n, Q = n + 4, Q + 12


def _tensor_dimension(d, D):
    """Number of scalars of the irrelevant groups (and of all Gram entries) that a tensor rule runs over."""
    return D - 1 if d == 1 else 4 if D == 2 and d > 2 else D - 1 + D


def _tensor_points(d, D, n):
    """Points (m, K_oo, K_ro, K_rr) and weights of the tensor rule, D = 2 (any d) or D = 3 (d <= 2)  [population.6]."""
    x, w = normal_rule(n)
    rules = [(x, w)] * (D - 1)
    if d > 1 and D == 2:
        freedom = d - 1
        rules += [chi_square_rule(n, freedom)] * 2 + [cosine_rule(n, freedom)]
    elif d == 2:
        rules += [(x, w)] * D
    grids = [grid.ravel() for grid in np.meshgrid(*(r[0] for r in rules), indexing="ij")]
    weights = np.ones(())
    for r in rules:
        weights = np.multiply.outer(weights, r[1])
    weights = weights.ravel()
    m = np.stack(grids[:D - 1], axis=1)
    N = len(m)
    if d == 1:
        gram = np.zeros((N, D - 1, D - 1)), np.zeros((N, D - 1)), np.zeros(N)
    elif D == 2:
        rho_r, rho_o, cosine = grids[1:]
        gram = rho_o[:, None, None], (np.sqrt(rho_r * rho_o) * cosine)[:, None], rho_r
    else:
        gram = _gram(np.stack(grids[D - 1:], axis=1)[:, :, None])
    return (m, *gram), weights


def _rqmc(problem, order, rtol, max_nodes, seed):
    """Randomised quasi-Monte Carlo over the irrelevant groups, a half-line rule over the relevant feature.

    The error is Student's 99 % bound on the mean of 8 independent scramblings, plus the difference from a rougher
    half-line rule.  Points m and -m are taken together: terms odd in the irrelevant features cancel exactly.
    """
    replicates, first, count, cost = 8, 0, 64, 0
    bound = stdtrit(replicates - 1, 0.995) / np.sqrt(replicates)
    layer = _layer(problem, order)
    sums = np.zeros((replicates, 8))

    def block(replicate, Q):
        points = _sampled_points(problem.d, problem.D, first, count, replicates * seed + replicate)
        return _blocked_sums(problem, order, *half_normal_rule(Q, layer), points).sum(axis=0) / 2

    Q, rough_error = 16, None
    while True:
        if rough_error is None:                # the half-line rule is judged, and refined, once: on the first block
            pilot = block(0, Q)
            rough_error = np.abs(pilot - block(0, Q - 4)) / count
            cost += 2 * count * (2 * Q - 4)
            if not _met(problem, pilot / count, rough_error, rtol / 4) and Q < 128:
                Q, rough_error = Q + 16, None
                continue
        for replicate in range(replicates):
            sums[replicate] += block(replicate, Q)
        cost += 2 * count * replicates * Q
        first, count = first + count, first + count
        value = sums.mean(axis=0) / first
        error = bound * sums.std(axis=0, ddof=1) / first + rough_error
        if _met(problem, value, error, rtol) or cost * 3 > max_nodes:
            return value, error, cost


def _sampled_points(d, D, first, count, seed, relevant=False):
    """`count` quasi-random points (m, K_oo, K_ro, K_rr), each with its mirror image in m, so 2 count rows.

    `relevant`: a further normal comes first in m, for the relevant group.
    """
    freedom, k = d - 1, D - 1 + relevant
    if freedom <= D:
        normals = sobol_normals(k + D * freedom, first, count, seed)
        gram = _gram(normals[:, k:].reshape(count, D, freedom))
    else:                                      # Bartlett: the Gram matrix is L L^T, L lower triangular, chi on its diagonal
        normals = sobol_normals(k + D * (D + 1) // 2, first, count, seed)
        L = np.zeros((count, D, D))
        rows, columns = np.tril_indices(D, -1)
        L[:, rows, columns] = normals[:, k + D:]
        L[:, np.arange(D), np.arange(D)] = np.sqrt(
            2 * gammaincinv((freedom - np.arange(D)) / 2, ndtr(normals[:, k:k + D])))
        gram = _gram(L)
    m = normals[:, :k] if relevant else _sum_first(normals[:, :k])
    return (np.concatenate([m, -m]), *(np.concatenate([part, part]) for part in gram))


def reduced_sample(problem, n, seed=0):
    """n inputs with the label flipped to +1, in units of sigma: m (n, D) along v*, K (n, D, D) Gram matrices across.

    Scrambled Sobol points; m[:, relevant] is half-normal.  A fair sample of the law, for statistics other than means.
    """
    D, r = problem.D, problem.relevant
    others, K_oo, K_ro, K_rr = (part[:n] for part in _sampled_points(problem.d, D, 0, n, seed, relevant=True))
    irrelevant = np.arange(D) != r
    m, K = np.empty((n, D)), np.empty((n, D, D))
    m[:, r], m[:, irrelevant] = np.abs(others[:, 0]), others[:, 1:]
    K[:, r, r], K[:, r, irrelevant], K[:, irrelevant, r] = K_rr, K_ro, K_ro
    K[np.ix_(np.arange(n), irrelevant, irrelevant)] = K_oo
    return m, K


def _sum_first(z):
    """Rotate normals z (N, k) so that the first of them becomes the sum over groups, sum_i m_i = sqrt(k) z_1.

    The logit depends on the irrelevant groups mostly through that sum, and the first Sobol coordinate is the finest.
    """
    k = z.shape[1]
    mirror = np.full(k, -1.0 / np.sqrt(k))     # Householder reflection that takes the first axis to (1, .., 1)/sqrt(k)
    mirror[0] += 1.0
    norm = mirror @ mirror
    return z - np.outer(z @ mirror, (2.0 / norm) * mirror) if norm > 0 else z


def _met(problem, value, error, rtol):
    """Do the errors of (loss, six velocities, ...) meet rtol, in the sense of `population`?"""
    scales = velocity_scales(problem)
    return bool(error[0] <= rtol * value[0] and
                np.max(error[1:7] / scales) <= rtol * np.max(np.abs(value[1:7]) / scales))


def _result(problem, value, error, leak, rtol, rule, n_nodes):
    return Population(float(value[0]), OrderParameters.from_array(value[1:7]), float(error[0]),
                      OrderParameters.from_array(error[1:7]), float(leak), rule, int(n_nodes),
                      _met(problem, value, error, rtol))
