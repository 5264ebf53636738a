"""What are loss and velocity when q irrelevant groups are looked at one by one, and the rest stand for their mean?

The integrand of the sparse grid.  Of the `rest` = D - 1 - q groups only the sum y of their features is kept: as keys
and as queries they are replaced by the measure  rest nu + y x nu,  nu the law of one group and x its feature (the mean
of their empirical measure, and its part along x).  All sums over keys are then linear in y, outputs are expanded to
order ORDER in y, and y ~ N(0, rest) is integrated by a rule of its own.  The result is smooth in q, exact at rest = 0.
At unit sigma: alpha, a, b stand for alpha sigma, a sigma^2, b sigma^2.  n = d - 1 is the dimension of the orthogonal
parts w, rho = |w|^2.  Source: derivations/06_quadrature.md.

    Shapes: N points, J = 1 + q + B queries: the relevant group, the q given ones, B nodes for the rest
        m_r, rho_r (N,)   m, rho (q, N)   cosines (q+1, q+1, N)   everything per key: (J, N)
    A polynomial in y is a tuple of its coefficients.
"""

import math
from typing import NamedTuple

import numpy as np

ORDER = 3                   # of the expansion of outputs in y
QUANTITIES = 8              # loss, the velocities of (alpha, a, b, m_rr, m_ro, m_oo), leak


class Law(NamedTuple):
    """Sizes and order parameters at unit sigma; m_or, m_ox are the scores that zero column sums fix."""

    D: int
    n: int
    alpha: float
    a: float
    b: float
    m_rr: float
    m_ro: float
    m_oo: float
    m_or: float
    m_ox: float


class Base(NamedTuple):
    """A group of the rest as a query, (B,): x ~ N(0, 1), rho ~ chi^2_n, weights; nodes t ~ N(0, 1) and weights (T,)."""

    x: np.ndarray
    rho: np.ndarray
    weights: np.ndarray
    t: np.ndarray
    t_weights: np.ndarray


def size_of(v, scale):
    """The largest of loss and velocities v (8,) in their units `scale` (8,); the leak is not judged."""
    return float(np.max(np.abs(v[:7]) / scale[:7]))


def _given_key(law, i, x, rho, cosines):
    """(score, K) of the key with index i (0: relevant) for every query: score (J, N), K = E w_i . w_j under its weight.

    Between given groups the angle is `cosines`; where it is not given, averaging exp(b w_i . w_j) over directions
    multiplies the weight by exp(b^2 rho_i rho_j / 2n) up to fourth order, and makes E w_i . w_j = b rho_i rho_j / n.
    """
    given = 0 if cosines is None else len(cosines)
    M = np.full((len(x), 1), law.m_ro if i == 0 else law.m_ox)
    M[0] = law.m_or
    M[i] = law.m_oo if i else law.m_rr
    score = (law.a * x[i]) * x + M
    if law.n == 0:
        return score, 0.0
    K = (law.b / law.n * rho[i]) * rho + np.zeros_like(score)
    score += 0.5 * law.b * K
    score[i] += law.b * rho[i] - 0.5 * law.b * K[i]
    K[i] = rho[i]
    for j in range(given):
        if j != i:
            score[j] -= 0.5 * law.b * K[j]
            K[j] = np.sqrt(rho[i] * rho[j]) * cosines[i, j]
            score[j] += law.b * K[j]
    return score, K


def _keys(law, x, rho, cosines, e, rest, base):
    """Sums over keys for every query, and their derivatives in y: two stacks (7, J, N), and Z (J, N).

    The seven: E m, E m^2, E m K, E K, the weight of key r, the weight of the query's own key, and all but that of r.
    """
    a, b, n = law.a, law.b, law.n
    keys = [_given_key(law, i, x, rho, cosines) for i in range(e)]
    top = keys[0][0]
    for score, _ in keys[1:]:
        top = np.maximum(top, score)
    if rest:
        # keys of the rest: E exp(a m m_j) over m ~ N(0, 1) tilts m to mean a m_j; likewise K to b rho_j
        M = np.full((len(x), 1), law.m_ox)
        M[0] = law.m_or
        ax = a * x
        score = 0.5 * ax * ax + (M + 0.5 * b * b * rho)
        own = ax[e:] * x[e:] + (law.m_oo + b * rho[e:])
        top = np.maximum(top, score)
        top[e:] = np.maximum(top[e:], own)
    sums, slopes = np.zeros((7, *top.shape)), np.zeros((7, *top.shape))
    for i, (given, K) in enumerate(keys):
        w = np.exp(given - top)
        wm = w * x[i]
        sums[0] += wm
        sums[1] += wm * x[i]
        if n:
            sums[2] += wm * K
            sums[3] += w * K
        if i:
            sums[5, i] = w[i]
            sums[6] += w
        else:
            sums[4] = w
    if rest:
        w = np.exp(score - top)
        count = np.full((len(x), 1), float(rest))
        count[e:] -= 1
        square = 1 + ax * ax
        z, n1 = w * ax, w * square             # the derivatives in y: one more factor m under the tilted law
        slopes[0], slopes[1], slopes[6] = n1, z * (2 + square), z
        sums[0] += count * z
        sums[1] += count * n1
        sums[6] += count * w
        own = np.exp(own - top[e:])
        own_m = own * x[e:]
        sums[0, e:] += own_m
        sums[1, e:] += own_m * x[e:]
        sums[5, e:] = own
        sums[6, e:] += own
        if n:
            br = b * rho
            slopes[2], slopes[3] = br * n1, br * z
            sums[2] += count * slopes[3]
            sums[3] += (count * br) * w
            sums[2, e:] += own_m * rho[e:]
            sums[3, e:] += own * rho[e:]
    return sums, slopes, sums[6] + sums[4]


def _over_queries(outputs, e, rest, base):
    """sum_j o_j as coefficients of 1, y, .., y^(order+1), (order+2, 7, N), from `outputs` (order+1, 7, J, N)  [quad.4].

    A query of the rest sees its fellows, whose features sum to y - x; the measure of the rest weighs it by rest + y x.
    """
    order = len(outputs) - 1
    result = np.zeros((order + 2, outputs.shape[1], outputs.shape[3]))
    outputs[:, :, :e].sum(axis=2, out=result[:-1])
    if rest:
        for i in range(order + 1):                                         # (rest + y x) (y - x)^i, coefficients of y
            shifted = np.zeros((order + 2, len(base.x)))
            for j in range(i + 1):
                part = math.comb(i, j) * base.weights * (-base.x)**(i - j)
                shifted[j] += rest * part
                shifted[j + 1] += base.x * part
            result += (shifted @ outputs[i, :, e:]).transpose(1, 0, 2)
    return result


def polynomials(law, m_r, m, rho_r, rho, cosines, base):
    """f/alpha, the factors of c in the other five velocities, the leak, as polynomials in y, (order+2, 7, N)  [quad.5].

    cosines: None, or the cosines of the angles among the relevant and the given groups.  rho_r and rho may have one
    column when they do not vary.  For each query, with weights E of the keys: Z = sum E, and the sums of E times m,
    m^2, K, m K, give its mean, its variance and the entries of G, each a ratio to Z and expanded in y.
    """
    D, n = law.D, law.n
    k, (q, N) = D - 1, m.shape
    rest, e = k - q, 1 + q
    order = ORDER if rest else 0
    x, rho = np.concatenate([m_r[None], m]), np.concatenate([rho_r[None], rho])
    if rest:
        x = np.concatenate([x, np.broadcast_to(base.x[:, None], (len(base.x), N))])
        rho = np.concatenate([rho, np.broadcast_to(base.rho[:, None], (len(base.x), rho.shape[1]))])
    sums, slopes, Z = _keys(law, x, rho, cosines, e, rest, base)
    h = 1 / Z
    ratios = np.empty((order + 1, *sums.shape))            # (X0 + y X1)/(Z0 + y Z1), coefficients of y
    np.multiply(sums, h, out=ratios[0])
    if order:
        slope = slopes[6] * h
        np.multiply(slopes, h, out=ratios[1])
        ratios[1] -= ratios[0] * slope
        for i in range(2, order + 1):
            np.multiply(ratios[i - 1], -slope, out=ratios[i])
    mbar = ratios[:, 0]
    for j in range(order, -1, -1):                         # in place, from the top: lower coefficients are still ratios
        ratios[j, 4] *= x[0] - mbar[0]
        ratios[j, 5] *= x - mbar[0]
        ratios[j, 2] -= mbar[0] * ratios[j, 3]
        for i in range(1, j + 1):
            ratios[j, 2] -= mbar[i] * ratios[j - i, 3]
            ratios[j, 4:6] -= mbar[i] * ratios[j - i, 4:6]
        for i in range(j + 1):
            ratios[j, 1] -= mbar[i] * mbar[j - i]
    ratios[:, 1] *= x
    # now m_j's mean, m_j Var_j, Cov_j, (unused), G[r, j]/alpha, G[j, j]/alpha, leak
    found = _over_queries(ratios, e, rest, base)
    found[:-1, 3] = ratios[:, 4, 0]                        # G[r, r]; m_ro is a mean over irrelevant queries
    found[-1, 3] = 0.0
    found[:, 4] -= found[:, 3]
    gain, kappa2 = law.alpha, (0.5 * (D + 1))**2
    units = np.array([1.0, gain, gain / max(n, 1), kappa2 * gain, kappa2 * gain / k, kappa2 * gain / k, 1 / D])
    return found * units[:, None]


def _horner(found, y):
    value = found[-1]
    for part in found[-2::-1]:
        value = value * y + part
    return value


def _loss_and_factor(f):
    """log(1 + e^-f) and c = 1/(1 + e^f)."""
    tail = np.exp(-np.abs(f))
    return np.maximum(-f, 0) + np.log1p(tail), np.where(f < 0, 1.0, tail) / (1 + tail)


def outcome(law, found, y):
    """Loss, six velocities and leak, (8, len(y), N), at given y from `polynomials`."""
    values = _horner(found[:, :, None], y[:, None])
    loss, c = _loss_and_factor(law.alpha * values[0])
    values[:6] *= c
    return np.concatenate([loss[None], values])


def integrand(law, m_r, m, rho_r, rho, cosines, base):
    """Loss, six velocities and leak at N points, with y ~ N(0, rest) integrated by its rule, shape (8, N)  [quad.6].

    Arguments as `polynomials`.
    """
    rest = law.D - 1 - len(m)
    found = polynomials(law, m_r, m, rho_r, rho, cosines, base)
    t, weights = (base.t, base.t_weights) if rest else (np.zeros(1), np.ones(1))
    y = np.sqrt(rest) * t
    powers = weights * y ** np.arange(len(found))[:, None]
    loss, c = _loss_and_factor(law.alpha * _horner(found[:, 0], y[:, None]))
    out = np.empty((QUANTITIES, len(m_r)))
    out[0] = weights @ loss
    np.einsum("pqn,pn->qn", found[:, :6], powers @ c, out=out[1:7])        # E c y^p times the coefficients
    out[7] = powers.sum(axis=1) @ found[:, 6]
    return out
