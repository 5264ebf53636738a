"""What are loss and velocity with one to four irrelevant groups, all of them given on an equally spaced grid?

Late in training two features together can turn the attention within a small distance, at any place: mixtures of fine
and coarse rules do not see that, equal spacing in all features does.  |w|^2 is at its mean and angles are averaged.
Everything is at unit sigma; values are arrays (8,), see `mean_token.integrand`.  Source: derivations/06_quadrature.md.
"""

import math
from functools import lru_cache

import numpy as np

from gsref.conditional import conditional_sums, orbit_sums
from gsref.mean_token import size_of
from gsref.quadrature import angle_rule, chi_square_rule, half_normal_rule

MOST_GROUPS, MOST_ORTHOGONAL = 4, 2
# nodes for |w|^2 of an irrelevant group, of the relevant one, and for a cosine
DIRECTIONS = ((1, 1, 2), (2, 2, 2), (3, 3, 2), (3, 3, 3), (4, 4, 3), (4, 4, 4), (5, 5, 4))
SPACING, FINER = 0.8, 1.35                     # of the grid at first, and by how much it shrinks
RELEVANT, MORE = 28, 1.4                       # nodes for m_r at first, and how many more
TAIL = 22.0                                    # sums of squares up to TAIL - 2 log(target): less than target
SAFETY = 1.5                                   # empirical, see the tests of honest errors
BLOCK = 2**17                                  # doubles in the largest temporary: 1 MB


@lru_cache(maxsize=8)
def spaced_multisets(k, spacing, reach):
    """All multisets of k nodes of a grid through 0, within `reach` of it: m (M, k) and weights (M,) for k normals.

    The rule is the product of trapezoidal rules: with distance w of the nearest singularity from the real line its
    error falls as exp(-2 pi w/spacing)  [quad.12].
    """
    half = int(reach / spacing)
    x = spacing * np.arange(-half, half + 1)
    w = np.exp(-0.5 * x * x)
    w /= w.sum()
    index = np.arange(len(x))[:, None]
    for _ in range(k - 1):                     # sorted rows, cut as they grow
        last, more = index[:, -1], np.arange(len(x))
        row, column = np.nonzero(more >= last[:, None])
        index = np.concatenate([index[row], column[:, None]], axis=1)
        index = index[(x[index]**2).sum(axis=1) <= reach**2]
    same = index[:, 1:] == index[:, :-1]
    run, repeats = np.ones(len(index)), np.ones(len(index))
    for j in range(k - 1):
        run = np.where(same[:, j], run + 1, 1.0)
        repeats *= run
    weights = w[index].prod(axis=1) * (math.factorial(k) / repeats)
    return x[index], weights / weights.sum()                               # constants exactly


class FewGroups:
    """Values by spacing and number of nodes for m_r, computed when asked for and kept."""

    def __init__(self, law, layer, scale):
        self.law, self.layer, self.scale, self.k = law, layer, scale, law.D - 1
        self.done, self.nodes, self.at = {}, 0, (1, 1) if law.D <= 3 else (0, 0)

    def value(self, i, j, reach):
        """Value (8,) with the i-th spacing and the j-th number of nodes for m_r."""
        if (i, j, reach) not in self.done:
            m, weights = spaced_multisets(self.k, SPACING / FINER**i, reach)
            m_r, w_r = half_normal_rule(int(RELEVANT * MORE**j), self.layer)
            w_r = w_r / w_r.sum()
            step, value = max(1, BLOCK // (self.k * max(self.k, len(m_r)))), np.zeros(8)
            for start in range(0, len(weights), step):
                part, w = m[start:start + step], weights[start:start + step]
                with np.errstate(over="ignore", invalid="ignore"):          # far out of range it overflows
                    value = value + w @ orbit_sums(self.law, m_r, w_r, part, np.ones(part.shape))
            self.nodes += len(weights) * len(m_r)
            self.done[i, j, reach] = value
        return self.done[i, j, reach]

    def estimate(self, target, fine, max_nodes):
        """(value, error, rounding), each (8,): spacing and rule for m_r are refined until `target` or `max_nodes`.

        The error adds the differences from either rule before, the former with a shorter reach as well; each quantity
        has a share of the largest.  `fine` is not used: both rules are refined here.
        """
        cut = TAIL - 2 * math.log(target)
        near, far = math.sqrt(cut - 2.5), math.sqrt(cut)                   # the tail grows some threefold
        i, j = self.at
        while True:
            value = self.value(i, j, far)
            scale = self.scale(value)
            errors = [np.abs(value - self.value(i - 1, j, near)), np.abs(value - self.value(i, j - 1, far))]
            sizes = [size_of(error, scale) for error in errors]
            self.at = i, j
            finer = sizes[0] >= sizes[1]
            growth = FINER**self.k if finer else MORE
            last = len(spaced_multisets(self.k, SPACING / FINER**i, far)[1]) * RELEVANT * MORE**j
            spent = self.nodes + 2 * growth * last > max_nodes
            if spent or SAFETY * sum(sizes) <= target or not np.isfinite(sizes).all():
                error = SAFETY * sum(error + 0.3 * size * scale for error, size in zip(errors, sizes))
                return value, error, 1e-14 * scale
            i, j = i + finer, j + (not finer)


class FewOrthogonal:
    """What the orthogonal parts of one or two irrelevant groups and of the relevant one change  [quad.13].

    value(i, j, s): the i-th spacing, the j-th number of nodes for m_r, `DIRECTIONS[s]` nodes for lengths and angles.
    """

    def __init__(self, law, layer, scale):
        self.law, self.layer, self.scale, self.k = law, layer, scale, law.D - 1
        self.done, self.nodes, self.at = {}, 0, [2, 1, 1, 2] if law.D == 2 else [1, 1, -1, 2]

    def value(self, *at):
        """Value (8,) at (i, j, s), or at (i, j, s, n_cosine) with that number of nodes for a cosine."""
        if at not in self.done:
            self.done[at] = self._value(*at)
        return self.done[at]

    def _value(self, i, j, s, n_cosine=None):
        k, n, (n_rho, n_rho_r, least) = self.k, self.law.n, DIRECTIONS[s]
        n_cosine = n_cosine or least
        m, weights = spaced_multisets(k, SPACING / FINER**i, math.sqrt(TAIL + 12))
        m_r, w_r = half_normal_rule(int(RELEVANT * MORE**j), self.layer)
        w_r = w_r / w_r.sum()
        rho, w_rho = _product([chi_square_rule(n_rho_r, n)] + [chi_square_rule(n_rho, n)] * k)
        gram, w_gram = angle_rule(k, n, n_cosine)
        K = (np.sqrt(rho[:, :, None] * rho[:, None, :])[:, None] * gram).reshape(-1, k + 1, k + 1)
        w_K = np.multiply.outer(w_rho, w_gram).ravel()
        step, value = max(1, BLOCK // (len(K) * k * max(k, len(m_r)))), np.zeros(8)
        for start in range(0, len(weights), step):
            part, w = m[start:start + step], weights[start:start + step]
            points, all_K = np.repeat(part, len(K), axis=0), np.tile(K, (len(part), 1, 1))
            with np.errstate(over="ignore", invalid="ignore"):
                value = value + np.multiply.outer(w, w_K).ravel() @ conditional_sums(
                    self.law, m_r, w_r, points, all_K[:, 1:, 1:], all_K[:, 0, 1:], all_K[:, 0, 0])
                value = value - w @ orbit_sums(self.law, m_r, w_r, part, np.ones(part.shape))
        self.nodes += len(weights) * (len(K) + 1) * len(m_r)
        return value

    def estimate(self, target, max_nodes, of):
        """(value, error), each (8,): three steps are refined, the one with the largest error first.

        value(i, j, 0) + value(u, u, s) - value(u, u, 0): many features with the fewest nodes for lengths and angles, and
        few features with more of these.  `of` (8,): the loss and velocities themselves, whose units count.
        """
        scale = self.scale(of)

        def rich(u, s):
            return self.value(u, u, s) - self.value(u, u, 0)
        while True:
            i, j, u, s = self.at
            poor = self.value(i, j, 0)
            errors = [np.abs(poor - self.value(i - 1, j, 0)), np.abs(poor - self.value(i, j - 1, 0)),
                      np.abs(rich(u, s) - rich(u - 1, s)), np.abs(rich(u, s) - rich(u, s - 1))]
            sizes = [size_of(error, scale) for error in errors]
            worst = int(np.argmax(sizes))
            spent = 2 * self.nodes > max_nodes or (worst == 3 and s + 1 == len(DIRECTIONS))
            if spent or SAFETY * sum(sizes) <= target or not np.isfinite(sizes).all():
                n_cosine = DIRECTIONS[s][2]    # one node more for a cosine, lengths at their mean: not in the steps of s
                errors.append(np.abs(self.value(u, u, 0, n_cosine + 1) - self.value(u, u, 0, n_cosine)))
                sizes.append(size_of(errors[-1], scale))
                error = SAFETY * sum(error + 0.3 * size * scale for error, size in zip(errors, sizes))
                return poor + rich(u, s), error
            self.at[worst] += 1


def _product(rules):
    """Tensor product of rules: nodes (N, number of rules), weights (N,)."""
    nodes = np.stack(np.meshgrid(*(x for x, _ in rules), indexing="ij"), axis=-1).reshape(-1, len(rules))
    return nodes, np.prod(np.meshgrid(*(w for _, w in rules), indexing="ij"), axis=0).ravel()
