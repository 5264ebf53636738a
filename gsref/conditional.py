"""What are loss and velocity when all irrelevant groups are given, and averaged over tensor or quasi-random points?

Everything is at unit sigma (see `mean_token.Law`): m = <v*, .> of each group, K the Gram matrix of the orthogonal
parts, the label flipped to +1, the irrelevant groups written first in the sums over keys (k = D - 1 of them).

    Shapes of one evaluation: N points of the irrelevant groups, Q nodes of the relevant one
        m_r (Q,)   m (N, k)   K_oo (N, k, k)   K_ro (N, k)   K_rr (N,)   everything conditional: (N, k, Q) or (N, Q)

Source: derivations/04_population.md and 06_quadrature.md.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammaincinv, ndtr, stdtrit

from gsref.mean_token import outcome, polynomials
from gsref.model import logistic_loss
from gsref.quadrature import (chi_square_rule, cosine_rule, half_normal_rule, normal_rule, shifted_half_normal_rule,
                              sobol_normals)

BLOCK = 2**17                                 # doubles in the largest temporary: 1 MB
REPLICATES = 16
SAMPLED = 2**21                               # doubles in the Gram matrices of the points that are drawn at once: 16 MB
DENSE = 128                                   # groups beyond which a point costs more than its nodes say: D^2 exponentials
MOST_SAMPLED = 1024                           # groups: beyond, the D x D matrices of a single look take minutes


class Columns(NamedTuple):
    """What irrelevant queries see of irrelevant keys: everything that does not depend on m_r, (N, k) if not said.

    m, count: feature and number of the groups (count 1 if they are listed one by one); log_sum = log of the sum of
    exponentials, mean and variance of m, mean of K, covariance of m and K under their weights; own, the weight of the
    query's own key; score_ro, score_or, score_rr (N,): what scores between the relevant group and the others add to
    a m_i m_j; K_ro, K_rr (N,).
    """

    m: np.ndarray
    count: np.ndarray
    log_sum: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    K_mean: np.ndarray
    covariance: np.ndarray
    own: np.ndarray
    score_ro: np.ndarray
    score_or: np.ndarray
    score_rr: np.ndarray
    K_ro: np.ndarray
    K_rr: np.ndarray


def conditional_sums(law, m_r, w_r, m, K_oo, K_ro, K_rr):
    """(loss, six velocities, leak) at each of N points of the irrelevant groups, averaged over the relevant one.

    m_r, w_r (Q,) nodes and weights; m (N, k), K_oo (N, k, k), K_ro (N, k), K_rr (N,).  Returns (N, 8).
    The other keys of a query do not depend on m_r: their sums are taken once, and each node of m_r costs O(k)
    exponentials  [population.4].
    """
    a, b, diagonal = law.a, law.b, np.arange(law.D - 1)
    A = a * m[:, :, None] * m[:, None, :] + b * K_oo + law.m_ox
    A[:, diagonal, diagonal] += law.m_oo - law.m_ox
    top = A.max(axis=1)
    E = np.exp(A - top[:, None, :])
    total = E.sum(axis=1)
    E /= total[:, None, :]
    mean = np.einsum("nij,ni->nj", E, m)
    apart = m[:, :, None] - mean[:, None, :]
    return _join(law, m_r, w_r, Columns(
        m, np.ones((1, 1)), top + np.log(total), mean, np.einsum("nij,nij->nj", E, apart**2),
        np.einsum("nij,nij->nj", E, K_oo), np.einsum("nij,nij->nj", E, apart * K_oo), E[:, diagonal, diagonal],
        law.m_ro + b * K_ro, law.m_or + b * K_ro, law.m_rr + b * K_rr, K_ro, K_rr))


def orbit_sums(law, m_r, w_r, m, count):
    """The same where `count` (N, G) groups of the same feature m (N, G) are taken together; count may be 0.

    |w|^2 is at its mean n and angles are averaged, as in `mean_token`: exp(b w_i . w_j) is exp(b^2 n/2) on average, and
    E w_i . w_j under that weight is b n.
    """
    a, b, n, (N, G) = law.a, law.b, law.n, m.shape
    pair, diagonal = 0.5 * b * b * n, np.arange(G)
    fellows = np.repeat(count[:, :, None], G, axis=2)
    fellows[:, diagonal, diagonal] -= count > 0
    A = np.where(fellows > 0, a * m[:, :, None] * m[:, None, :] + (law.m_ox + pair), -np.inf)
    own = a * m * m + (law.m_oo + b * n)
    top = np.maximum(A.max(axis=1), own)
    E, own = fellows * np.exp(A - top[:, None, :]), np.exp(own - top)
    total = E.sum(axis=1) + own
    E, own = E / total[:, None, :], own / total
    mean = np.einsum("nij,ni->nj", E, m) + own * m
    variance = np.einsum("nij,nij->nj", E, (m[:, :, None] - mean[:, None, :])**2) + own * (m - mean)**2
    with np.errstate(divide="ignore"):
        log_count = np.log(count)
    K = n * (1 - b) * own                      # K is b n for all keys but the own one, n for that
    return _join(law, m_r, w_r, Columns(
        m, count, top + np.log(total), mean, variance, b * n + K, K * (m - mean), own,
        np.full((1, 1), law.m_ro + pair), law.m_or + pair + log_count, np.full(1, law.m_rr + b * n),
        np.full((N, G), b * n), np.full(1, float(n))))


def _join(law, m_r, w_r, given):
    """(N, 8) of `conditional_sums`, from what does not depend on the relevant group  [population.5].

    The score of key r enters each column as a logistic function of its distance from the log-sum of the others.
    """
    alpha, a, k, kappa2 = law.alpha, law.a, law.D - 1, (0.5 * (law.D + 1))**2
    m, count, mean, K_ro = given.m, given.count, given.mean, given.K_ro
    gap = (given.score_ro - given.log_sum)[:, :, None] + (a * m)[:, :, None] * m_r                       # (N, k, Q)
    S, leak = expit(gap), expit(-gap)
    lead = m_r - mean[:, :, None]
    pull = S * leak * lead                     # G[r, j] / alpha

    # column r, over irrelevant keys
    A_r = (a * m[:, :, None] * m_r) + given.score_or[:, :, None]
    top_r = A_r.max(axis=1)
    E_r = np.exp(A_r - top_r[:, None, :])
    total_r = E_r.sum(axis=1)
    E_r /= total_r[:, None, :]
    mean_r = np.einsum("niq,ni->nq", E_r, m)
    apart_r = m[:, :, None] - mean_r[:, None, :]
    variance_r = np.einsum("niq,niq->nq", E_r, apart_r**2)
    K_mean_r = np.einsum("niq,ni->nq", E_r, K_ro)
    covariance_r = np.einsum("niq,ni->nq", E_r * apart_r, K_ro)
    gap_r = a * m_r**2 + given.score_rr[:, None] - top_r - np.log(total_r)                               # (N, Q)
    S_r, leak_r = expit(gap_r), expit(-gap_r)
    lead_r = m_r - mean_r
    pull_r = S_r * leak_r * lead_r

    # sums over queries
    ones = count + np.zeros(m.shape)
    spread = np.einsum("nj,njq->nq", count * m, pull * lead + leak * given.variance[:, :, None])
    spread_r = m_r * (pull_r * lead_r + leak_r * variance_r)
    turn = (np.einsum("nj,njq->nq", count * (K_ro - given.K_mean), pull)
            + np.einsum("nj,njq->nq", count * given.covariance, leak))
    turn_r = pull_r * (given.K_rr[:, None] - K_mean_r) + leak_r * covariance_r
    g = (np.einsum("nj,nj->n", ones, mean)[:, None] + np.einsum("nj,njq->nq", ones, S * lead)
         + mean_r + S_r * lead_r)              # f / alpha
    f = alpha * g
    c = expit(-f) * w_r
    self_pull = np.einsum("nj,njq->nq", count * given.own, leak * ((m - mean)[:, :, None] - S * lead))
    return np.stack([
        logistic_loss(f) @ w_r,
        (c * g).sum(axis=1),
        alpha * (c * (spread + spread_r)).sum(axis=1),
        alpha * (c * (turn + turn_r)).sum(axis=1) / max(law.n, 1),
        kappa2 * alpha * (c * pull_r).sum(axis=1),
        kappa2 * alpha * (c * np.einsum("nj,njq->nq", ones, pull)).sum(axis=1) / k,
        kappa2 * alpha * (c * self_pull).sum(axis=1) / k,
        (np.einsum("nj,njq->nq", ones, leak) + leak_r) @ w_r / law.D], axis=1)


def _blocks(D, N, Q):
    step = max(1, int(BLOCK / ((D - 1) * max(D - 1, Q))))
    return [slice(i, i + step) for i in range(0, N, step)]


def _gram(w):
    """Gram matrices, split into (others, others), (relevant, others), (relevant, relevant), of w (N, D, d-1)."""
    K = w @ w.transpose(0, 2, 1)
    return K[:, 1:, 1:], K[:, 0, 1:], K[:, 0, 0]


# ---- tensor rules, for few groups

def tensor(law, layer, met, max_nodes, share):
    """Tensor rule over every scalar of the irrelevant groups; the error is the difference from a rougher rule.

    `met(value, error)` says whether to stop; `share(error)` (8,) is the largest of the errors in the units of each: a
    quantity whose difference is small by chance gets a part of it.  Returns value (8,), error (8,), nodes.
    """
    def value(n, Q):
        points, weights = tensor_points(law.n + 1, law.D, n)
        m_r, w_r = half_normal_rule(Q, layer)
        return sum(weights[i] @ conditional_sums(law, m_r, w_r, *(part[i] for part in points))
                   for i in _blocks(law.D, len(weights), Q))

    dimension = law.D - 1 if law.n == 0 else 4 if law.D == 2 and law.n > 1 else 2 * law.D - 1
    n, Q, cost = 8, 24, 0
    while True:
        fine, rough = value(n, Q), value(n - 3, Q - 8)
        cost += n**dimension * Q + (n - 3)**dimension * (Q - 8)
        error = np.abs(fine - rough)
        error = 1.5 * error + 0.3 * share(error)
        if met(fine, error) or cost + (n + 4)**dimension * (Q + 12) > max_nodes:
            return fine, error, cost
        n, Q = n + 4, Q + 12


def tensor_points(d, D, n):
    """Points (m, K_oo, K_ro, K_rr) and weights of the tensor rule, D = 2 (any d) or D = 3 (d <= 2)  [population.6]."""
    x, w = normal_rule(n)
    rules = [(x, w)] * (D - 1)
    if d > 2:
        rules += [chi_square_rule(n, d - 1)] * 2 + [cosine_rule(n, d - 1)]
    elif d == 2:
        rules += [(x, w)] * D
    grids = [grid.ravel() for grid in np.meshgrid(*(r[0] for r in rules), indexing="ij")]
    weights = np.ones(())
    for r in rules:
        weights = np.multiply.outer(weights, r[1])
    m = np.stack(grids[:D - 1], axis=1)
    N = len(m)
    if d == 1:
        gram = np.zeros((N, D - 1, D - 1)), np.zeros((N, D - 1)), np.zeros(N)
    elif d > 2:
        rho_r, rho_o, cosine = grids[1:]
        gram = rho_o[:, None, None], (np.sqrt(rho_r * rho_o) * cosine)[:, None], rho_r
    else:
        gram = _gram(np.stack(grids[D - 1:], axis=1)[:, :, None])
    return (m, *gram), weights.ravel()


# ---- randomised quasi-Monte Carlo, for any number of groups

def rqmc(law, layer, met, max_nodes, seed, control=None):
    """Randomised quasi-Monte Carlo over the irrelevant groups; value (8,), error (8,), nodes  [quad.10].

    16 independent replicates, each a scrambled Sobol sequence for the groups and a randomly shifted trapezoidal rule
    for the relevant feature: every replicate is unbiased, whatever the integrand, and the error is 3.3 standard errors
    of their mean (Student, 15 degrees of freedom: each quantity exceeds it with probability 0.5 %).
    Points m and -m are taken together: terms odd in the irrelevant features cancel exactly.
    control: None, or (base, expected): the `Base` of the mean-group approximation `surrogate` and its expectation (8,);
    the difference from it is then sampled wherever that has the smaller variance in the first block.
    """
    bound = stdtrit(REPLICATES - 1, 0.9975) / np.sqrt(REPLICATES)
    first, count, cost, Q = 0, 16, 0, 24
    shifts = np.random.default_rng([seed, 2]).random(REPLICATES)
    rules = [shifted_half_normal_rule(Q, layer, shift) for shift in shifts]
    approximations = [control and surrogate(law, *rule, control[0]) for rule in rules]
    sums, use = np.zeros((REPLICATES, 2, 8)), None

    at_once = 2 ** max(0, (SAMPLED // law.D**2).bit_length() - 1)          # a power of 2, as Sobol blocks are

    def block(replicate):
        h, g = np.zeros(8), np.zeros(8)
        for start in range(first, first + count, at_once):
            n = min(at_once, first + count - start)
            points = sampled_points(law.n + 1, law.D, start, n, REPLICATES * seed + replicate)
            for i in _blocks(law.D, 2 * n, Q):
                part = [array[i] for array in points]
                h += conditional_sums(law, *rules[replicate], *part).sum(axis=0)
                if control:
                    g += approximations[replicate](part[0].sum(axis=1)).sum(axis=0)
        return h / 2, h / 2 - g / 2

    while True:
        for replicate in range(REPLICATES):
            sums[replicate] += block(replicate)
        cost += 2 * count * REPLICATES * Q
        first, count = first + count, first + count
        if use is None:
            use = np.argmin(sums.std(axis=0), axis=0) if control else np.zeros(8, int)
            offset = np.where(use == 1, control[1], 0.0) if control else 0.0
        means = sums[:, use, np.arange(8)] / first
        value = means.mean(axis=0) + offset
        error = bound * means.std(axis=0, ddof=1) + 1e-8 * np.abs(value)
        if (first >= 64 and met(value, error)) or 3 * cost * max(1.0, law.D / DENSE)**2 > max_nodes:
            return value, error, cost


def surrogate(law, m_r, w_r, base):
    """y (N,) -> (N, 8): the outputs with all irrelevant groups replaced by their mean and their sum y, rho by n."""
    found = polynomials(law, m_r, np.zeros((0, len(m_r))), np.full(1, float(law.n)), np.zeros((0, 1)), None, base)
    return lambda y: (outcome(law, found, y) @ w_r).T


def sampled_points(d, D, first, count, seed, relevant=False):
    """`count` quasi-random points (m, K_oo, K_ro, K_rr), each with its mirror image in m, so 2 count rows.

    `relevant`: a further normal comes first in m, for the relevant group.
    """
    freedom, k = d - 1, D - 1 + relevant
    if freedom <= D:
        normals = sobol_normals(k + D * freedom, first, count, seed)
        gram = _gram(normals[:, k:].reshape(count, D, freedom))
    else:                                      # Bartlett: Gram matrix L L^T, L lower triangular, chi on its diagonal
        normals = sobol_normals(k + D * (D + 1) // 2, first, count, seed)
        L = np.zeros((count, D, D))
        rows, columns = np.tril_indices(D, -1)
        L[:, rows, columns] = normals[:, k + D:]
        L[:, np.arange(D), np.arange(D)] = np.sqrt(
            2 * gammaincinv((freedom - np.arange(D)) / 2, ndtr(normals[:, k:k + D])))
        gram = _gram(L)
    m = normals[:, :k] if relevant else _sum_first(normals[:, :k])
    return (np.concatenate([m, -m]), *(np.concatenate([part, part]) for part in gram))


def _sum_first(z):
    """Rotate normals z (N, k) so that the first of them becomes the sum over groups, sum_i m_i = sqrt(k) z_1.

    The logit depends on the irrelevant groups mostly through that sum, and the first Sobol coordinate is the finest.
    """
    k = z.shape[1]
    mirror = np.full(k, -1.0 / np.sqrt(k))     # Householder reflection that takes the first axis to (1, .., 1)/sqrt(k)
    mirror[0] += 1.0
    norm = mirror @ mirror
    return z - np.outer(z @ mirror, (2.0 / norm) * mirror) if norm > 0 else z


def reduced_sample(problem, n, seed=0):
    """n inputs with the label flipped to +1, in units of sigma: m (n, D) along v*, K (n, D, D) Gram matrices across.

    Scrambled Sobol points; m[:, relevant] is half-normal.  A fair sample of the law, for statistics other than means.
    """
    D, r = problem.D, problem.relevant
    others, K_oo, K_ro, K_rr = (part[:n] for part in sampled_points(problem.d, D, 0, n, seed, relevant=True))
    irrelevant = np.arange(D) != r
    m, K = np.empty((n, D)), np.empty((n, D, D))
    m[:, r], m[:, irrelevant] = np.abs(others[:, 0]), others[:, 1:]
    K[:, r, r], K[:, r, irrelevant], K[:, irrelevant, r] = K_rr, K_ro, K_ro
    K[np.ix_(np.arange(n), irrelevant, irrelevant)] = K_oo
    return m, K
