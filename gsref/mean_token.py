"""What are loss and velocity when q irrelevant groups are looked at one by one, and the rest stand for their mean?

The integrand of the sparse grid.  Of the `rest` = D - 1 - q groups only the sum y of their features is kept: as keys and
as queries they are replaced by the measure  rest nu + y x nu,  nu the law of one group and x its feature (the mean of
their empirical measure, and its part along x).  All sums over keys are then linear in y, outputs are expanded to second
order in y, and y ~ N(0, rest) is integrated by a rule of its own.  So the result is smooth in q, and exact at rest = 0.
At unit sigma: alpha, a, b stand for alpha sigma, a sigma^2, b sigma^2.  n = d - 1 is the dimension of the orthogonal
parts w, rho = |w|^2.  Source: derivations/06_quadrature.md.

    Shapes: N points, J = 1 + q + B queries: the relevant group, the q given ones, B nodes for the rest
        m_r, rho_r (N,)   m, rho (q, N)   cosines (q+1, q+1, N)   everything per key: (J, N)
    A polynomial in y is a tuple of its coefficients.
"""

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
    """Nodes of a group of the rest as a query, (B,): x ~ N(0, 1), rho ~ chi^2_n, weights; nodes t ~ N(0, 1) and weights (T,)."""

    x: np.ndarray
    rho: np.ndarray
    weights: np.ndarray
    t: np.ndarray
    t_weights: np.ndarray


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


class _Queries:
    """Sums over queries of polynomials in y, given second-order outputs per query."""

    def __init__(self, q, rest, base):
        self.e, self.rest, self.base = 1 + q, rest, base

    def total(self, o, first=0):
        """sum_j o_j as coefficients of 1, y, .., y^(ORDER+1), from those of o, each (J, N)  [quad.6].

        A query of the rest sees its fellows, whose features sum to y - x; the measure of the rest weighs it by rest + y x.
        """
        result = [part[first:self.e].sum(axis=0) for part in o] + [0.0]
        if self.rest:
            x = self.base.x[:, None]
            shifted = [part[self.e:] for part in o]                        # o(y - x), by repeated Horner steps
            for i in range(ORDER):
                for j in range(ORDER - 1, i - 1, -1):
                    shifted[j] = shifted[j] - x * shifted[j + 1]
            w = np.stack([self.rest * self.base.weights, self.base.weights * self.base.x])
            for j, part in enumerate(shifted):
                plain, tilted = w @ part
                result[j] = result[j] + plain
                result[j + 1] = result[j + 1] + tilted
        return result


def integrand(law, m_r, m, rho_r, rho, cosines, base):
    """Loss, six velocities and leak at N points, shape (8, N)  [quad.7].

    cosines: None, or the cosines of the angles among the relevant and the given groups.  rho_r and rho may have one
    column when they do not vary.  For each query, with weights E of the keys: Z = sum E, and the sums of E times m, m^2,
    K, m K, give its mean, its variance and the entries of G, each a ratio to Z and expanded in y.
    """
    D, n, alpha, a, b = law[:5]
    k, (q, N) = D - 1, m.shape
    rest, e = k - q, 1 + q
    x, rho = np.concatenate([m_r[None], m]), np.concatenate([rho_r[None], rho])
    if rest:
        x = np.concatenate([x, np.broadcast_to(base.x[:, None], (len(base.x), N))])
        rho = np.concatenate([rho, np.broadcast_to(base.rho[:, None], (len(base.x), rho.shape[1]))])
    keys = [(*_given_key(law, i, x, rho, cosines), x[i]) for i in range(e)]
    if rest:
        # keys of the rest: E exp(a m m_j) over m ~ N(0, 1) tilts m to mean a m_j; likewise K to b rho_j
        M = np.full((len(x), 1), law.m_ox)
        M[0] = law.m_or
        ax = a * x
        score = 0.5 * ax * ax + M
        own = ax[e:] * x[e:] + law.m_oo
        if n:
            score = score + 0.5 * b * b * rho
            own = own + b * rho[e:]
    top = keys[0][0]
    for key in keys[1:]:
        top = np.maximum(top, key[0])
    if rest:
        top = np.maximum(top, score)
        top[e:] = np.maximum(top[e:], own)
    E = [np.exp(key[0] - top) for key in keys]
    others = sum(E[1:], np.zeros_like(top))
    N1, N2, R, NK = (sum((w * factor(key[1], key[2]) for w, key in zip(E, keys)), np.zeros_like(top)) if use else 0.0
                     for use, factor in ((1, lambda K, v: v), (1, lambda K, v: v * v), (n, lambda K, v: K),
                                         (n, lambda K, v: v * K)))
    z = n1 = n2 = r1 = nk1 = np.zeros((1, 1))
    own_weight = np.zeros((len(x), N))
    for i in range(1, e):
        own_weight[i] = E[i][i]
    if rest:
        w = np.exp(score - top)
        count = np.full((len(x), 1), float(rest))
        count[e:] -= 1
        cw, square = count * w, 1 + ax * ax
        z, n1 = w * ax, w * square             # the derivatives in y: one more factor m under the tilted law
        n2 = z * (2 + square)
        others += cw
        N1 += cw * ax
        N2 += cw * square
        w = own_weight[e:] = np.exp(own - top[e:])
        others[e:] += w
        N1[e:] += w * x[e:]
        N2[e:] += w * x[e:]**2
        if n:
            br = b * rho
            R += br * cw
            NK += br * (cw * ax)
            r1, nk1 = br * z, br * n1
            R[e:] += w * rho[e:]
            NK[e:] += w * x[e:] * rho[e:]
    h = 1 / (others + E[0])
    slope = z * h

    def ratio(X0, X1):                         # (X0 + y X1)/(Z0 + y z)
        x = [X0 * h]
        x.append(X1 * h - x[0] * slope)
        for _ in range(ORDER - 1):
            x.append(-slope * x[-1])
        return x

    def product(u, v):
        return [sum(u[i] * v[j - i] for i in range(j + 1)) for j in range(ORDER + 1)]

    def pull(weight, value):                   # G[i, j] / alpha of one key
        return product(ratio(weight, 0.0), [value - mbar[0], *(-part for part in mbar[1:])])

    mbar = ratio(N1, n1)
    spread = [x * (s - p) for s, p in zip(ratio(N2, n2), product(mbar, mbar))]
    queries = _Queries(q, rest, base)
    pull_r = pull(E[0], x[0])
    leak = ratio(others, z)
    polynomials = [queries.total(mbar), queries.total(spread), None, [part[0] for part in pull_r],
                   queries.total(pull_r, 1), queries.total(pull(own_weight, x), 1)]
    if n:
        turn = [s - p for s, p in zip(ratio(NK, nk1), product(mbar, ratio(R, r1)))]
        polynomials[2] = queries.total(turn)
    t, t_weights = (base.t, base.t_weights) if rest else (np.zeros(1), np.ones(1))
    y = np.sqrt(rest) * t[:, None]
    total = 0.0
    for part in reversed(polynomials[0]):
        total = total * y + part
    f = alpha * total
    tail = np.exp(-np.abs(f))
    c = np.where(f < 0, 1.0, tail) / (1 + tail)
    moments = np.stack([t_weights * y[:, 0]**j for j in range(ORDER + 2)]) @ c             # E c y^j
    kappa2 = (0.5 * (D + 1))**2
    units = (1.0, alpha, alpha / max(n, 1), kappa2 * alpha, kappa2 * alpha / k, kappa2 * alpha / k)
    out = np.zeros((QUANTITIES, N))
    out[0] = t_weights @ (np.maximum(-f, 0) + np.log1p(tail))
    for row, unit, polynomial in zip(out[1:], units, polynomials):
        if polynomial is not None:
            row += unit * sum(part * moment for part, moment in zip(polynomial, moments))
    out[7] = sum(part * (t_weights @ y[:, 0]**j) for j, part in enumerate(queries.total(leak))) / D
    return out
