"""How does the sparse grid over groups integrate loss and velocity, and how far is it off?

Two series of terms, both of which fall off quickly where attention depends weakly on any one group:

    t_0, t_1, ..  Smolyak increments over the features m of the irrelevant groups, with rho = |w|^2 at its mean and
                  angles averaged: terms with l groups away from the mean group, or finer rules for fewer
    T_0, T_1, ..  what the orthogonal parts add: rho off its mean, angles between two groups, triangles of angles

The fine rules for m_r (half-line) and y (the rest's sum) are coarser for higher terms.  Everything is at unit sigma;
values are arrays (8,), see `mean_token.integrand`.  Source: derivations/06_quadrature.md.
"""

import math
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from gsref.few_groups import MOST_GROUPS, MOST_ORTHOGONAL, FewGroups, FewOrthogonal
from gsref.mean_token import QUANTITIES, Base, integrand, size_of
from gsref.quadrature import angle_rule, chi_square_rule, half_normal_rule, normal_rule, normal_trapezoid
from gsref.sparse_grid import orbits
from gsref.zero_base import MOST_GIVEN, RELEVANT, WIDEST, ZeroBase

# nodes for y, their reach, and nodes for a group of the rest as a query.  They define H_q: differences in q and sums
# over q make sense only with the same ones throughout; y needs accuracy, the queries only a quick decrease of terms
REST = ((11, 4.0, 5), (13, 4.5, 7), (15, 5.0, 7), (19, 5.5, 7), (21, 5.5, 7), (25, 6.0, 9), (31, 6.8, 11),
        (41, 7.6, 13), (55, 8.2, 15))
# Q_l, l = 1, 2, ..: Gauss rules with 5, 7, .. nodes for the feature m of a group
RULES = tuple(normal_rule(5 + 2 * l) for l in range(6))
# (index into RELEVANT, nodes of m, of rho, of rho_r, of the cosine) for T_0, T_1, ..; each row a digit better, with
# REST[ROW_REST[row]]
ORTHOGONAL = (((0, 0, 2, 2, 0), (0, 3, 2, 2, 2), (0, 3, 1, 1, 2)),
              ((1, 0, 2, 2, 0), (1, 5, 2, 2, 3), (0, 4, 1, 1, 2)),
              ((2, 0, 3, 3, 0), (2, 7, 2, 2, 3), (1, 5, 1, 1, 2), (0, 3, 1, 1, 2)),
              ((3, 0, 4, 4, 0), (3, 7, 3, 3, 3), (1, 5, 2, 2, 2), (0, 4, 1, 1, 2)),
              ((4, 0, 5, 5, 0), (4, 9, 3, 3, 4), (1, 5, 2, 2, 3), (0, 4, 2, 1, 2)),
              ((5, 0, 6, 6, 0), (5, 11, 4, 4, 4), (2, 7, 2, 2, 3), (1, 5, 2, 1, 2)))
ROW_REST = (1, 2, 2, 3, 4, 5)
CHUNK = 8000                                   # queries x points at once: some 30 temporaries of it stay in the cache
NOTHING_KNOWN = 1e300
SAFETY = 2.5                                  # empirical, see the tests of honest errors


class Inner(NamedTuple):
    """Nodes (F,) of what is integrated for every orbit, and the law of the rest as queries."""

    m_r: np.ndarray
    rho_r: np.ndarray
    weights: np.ndarray
    base: Base


class Sum(NamedTuple):
    """value (8,), rounding (8,) = eps times the sum of the absolute terms, number of points."""

    value: np.ndarray
    rounding: np.ndarray
    nodes: int

    def __add__(self, other):
        return Sum(self.value + other.value, self.rounding + other.rounding, self.nodes + other.nodes)

    def times(self, factor):
        return Sum(factor * self.value, abs(factor) * self.rounding, self.nodes)


ZERO = Sum(np.zeros(QUANTITIES), np.zeros(QUANTITIES), 0)


def _chi_square(n_nodes, n):
    return chi_square_rule(n_nodes, n) if n else (np.zeros(1), np.ones(1))


@lru_cache(maxsize=None)
def _increment(level, k):
    """What `level` adds to the Smolyak rule over k groups, as pairs (nodes (M, q), weights (M,))."""
    return [(group.nodes.reshape(len(group.weights), group.q), group.weights)
            for group in orbits((), RULES, level, k, least=level) if len(group.weights)]


@lru_cache(maxsize=None)
def _multisets(n_m, n_rho, n, q):
    """All multisets of q nodes of the rule (n_m nodes for m) x (n_rho for rho): m (M, q), rho (M, q), weights (M,)."""
    if q == 0:
        return np.zeros((1, 0)), np.zeros((1, 0)), np.ones(1)
    (x, wx), (r, wr) = normal_rule(n_m), _chi_square(n_rho, n)
    x, r, w = np.repeat(x, len(r)), np.tile(r, len(x)), np.outer(wx, wr).ravel()
    index = list(combinations_with_replacement(range(len(w)), q))
    repeats = np.array([math.factorial(q) / math.prod(math.factorial(s.count(i)) for i in set(s)) for s in index])
    index = np.array(index)
    return x[index], r[index], repeats * w[index].prod(axis=1)


class Estimate(NamedTuple):
    """value (8,); features, fine, orthogonal (8,): the three parts of the error, rounding with `fine`."""

    value: np.ndarray
    features: np.ndarray
    fine: np.ndarray
    orthogonal: np.ndarray

    @property
    def error(self):
        """The parts have independent causes and are each larger than what they bound: their root sum of squares."""
        return np.hypot(np.hypot(self.features, self.fine), self.orthogonal)


class ExchangeableGrid:
    """The terms of one expectation, computed when asked for and kept.

    law: mean_token.Law; layer: width over which the loss changes with m_r; s_irr: standard deviation of the part of f
    that the irrelevant groups contribute; lengths (6,): lengths of a unit of each order parameter.
    base: what t_0, t_1, .. are taken around: "few" and "zero" (every group given, see `few_groups` and `zero_base`) or
    "mean" (this module), None for the best at this D.
    """

    def __init__(self, law, layer, s_irr, lengths, base=None):
        self.law, self.layer, self.lengths = law, layer, lengths
        near = law.D - 1 <= MOST_GIVEN and s_irr <= WIDEST
        self.base = base or ("few" if law.D - 1 <= MOST_GROUPS else "zero" if near else "mean")
        self.given = {"few": FewGroups, "zero": ZeroBase}.get(self.base, lambda *_: None)(law, layer, self.scale)
        self.pairs = FewOrthogonal(law, layer, self.scale) if law.D - 1 <= MOST_ORTHOGONAL else None
        self.budget = 2**20                    # evaluations that `given` and `pairs` may take
        self.wide = min(1 + max(0.0, s_irr - 1), 20.0)                     # the loss changes faster with y: more nodes
        self.trust = 0.1 * min(max(1.0, s_irr / 1.5), 3.0)                 # terms alternate more where y matters more
        self.done, self.nodes = {}, 0

    def _once(self, key, compute):
        if key not in self.done:
            self.done[key] = compute()
            self.nodes += self.done[key].nodes
        return self.done[key]

    def _inner(self, fine, n_rho_r, rest, n_rho):
        """The nodes of RELEVANT[fine] and REST[rest], with n_rho_r and n_rho nodes for |w|^2 of the relevant group and
        of the rest."""
        n_y, reach, n_base = REST[rest]
        (m_r, w_r), (rho_r, w_rho) = half_normal_rule(RELEVANT[fine], self.layer), _chi_square(n_rho_r, self.law.n)
        w_r = w_r / w_r.sum()                  # constants exactly
        (x, w_x), (rho, w) = normal_rule(n_base), _chi_square(n_rho, self.law.n)
        base = Base(np.repeat(x, len(rho)), np.tile(rho, len(x)), np.outer(w_x, w).ravel(),
                    *normal_trapezoid(int(n_y * self.wide), reach))
        return Inner(np.repeat(m_r, len(rho_r)), np.tile(rho_r, len(m_r)), np.outer(w_r, w_rho).ravel(), base)

    def _integrate(self, m, weights, inner, rho=None, angles=None):
        """Sum over orbits m (M, q) x angles x inner nodes; rho (M, q), or None for its mean."""
        n, (M, q), F = self.law.n, m.shape, len(inner.weights)
        cosines, angle_weights = (None, np.ones(1)) if angles is None else angles
        total, steady = M * F * len(angle_weights), rho is None and len(np.unique(inner.rho_r)) == 1
        step = max(32, CHUNK // (1 + q + len(inner.base.weights)))
        value, size = np.zeros(QUANTITIES), np.zeros(QUANTITIES)
        for start in range(0, total, step):
            index, f = np.divmod(np.arange(start, min(start + step, total)), F)
            orbit, angle = np.divmod(index, len(angle_weights))
            rho_r = inner.rho_r[:1] if steady else inner.rho_r[f]
            rho_m = np.full((q, len(rho_r)), float(n)) if rho is None else rho[orbit].T
            c = None if cosines is None else np.moveaxis(cosines[angle], 0, -1)
            w = weights[orbit] * inner.weights[f] * angle_weights[angle]
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # far out of range it overflows
                h = integrand(self.law, inner.m_r[f], m[orbit].T, rho_r, rho_m, c, inner.base)
                value += h @ w
                size += np.abs(h) @ np.abs(w)
        return Sum(value, np.finfo(float).eps * size, total)

    def feature_term(self, level, fine, rest):
        """t_level with RELEVANT[fine] and REST[rest]."""
        def compute():
            inner = self._inner(fine, 1, rest, 1)
            return sum((self._integrate(m, weights, inner) for m, weights in _increment(level, self.law.D - 1)), ZERO)
        return self._once((level, fine, rest), compute)

    def _change(self, q, sizes, rest):
        """D_q = H_q(with w) - H_q(without): what the orthogonal parts of q given groups and of the rest change."""
        fine, n_m, n_rho, n_rho_r, n_cosine = sizes
        n = self.law.n
        m, rho, weights = _multisets(n_m, n_rho, n, q)
        angles = angle_rule(q, n, n_cosine) if q else None
        with_w = self._integrate(m, weights, self._inner(fine, n_rho_r, rest, n_rho), rho, angles)
        m, _, weights = _multisets(n_m, 1, n, q)
        return with_w + self._integrate(m, weights, self._inner(fine, 1, rest, 1)).times(-1)

    def orthogonal_term(self, order, row):
        """T_order = C(k, order) times the order-th difference in q of D_q, with ORTHOGONAL[row]  [quad.8]."""
        sizes, rest = ORTHOGONAL[row][order], ROW_REST[row]

        def compute():
            total = ZERO
            for q in range(order + 1):
                if q or sizes[2:4] != (1, 1):  # else nothing varies: D_0 = 0
                    total += self._change(q, sizes, rest).times((-1)**(order - q) * math.comb(order, q))
            return total.times(math.comb(self.law.D - 1, order))
        return self._once(("T", order, rest, *sizes), compute)

    def scale(self, value):
        """Units (8,) in which errors are compared: the loss, the largest velocity at equal learning rates, one."""
        largest = np.max(np.abs(value[1:7]) * self.lengths)
        return np.concatenate([[abs(value[0])], largest / self.lengths, [1.0]])

    def estimate(self, level, fine, row):
        """Value and error of the terms t_0..t_level with RELEVANT[fine], [fine-1], .. and REST[fine], and of T_0, ..
        with ORTHOGONAL[row].

        The three errors  [quad.9]:  features: the next terms, from the geometric decrease of the last ones;
        fine: difference from the next coarser rules for m_r and y, carried over to higher terms relative to t_1;
        orthogonal: difference from the row before, and the next order as a share of the last one.
        Where every group is given, the set grows until its error is 10^(-level/2).
        """
        value, features, error_fine = self._given(level, fine) if self.given else self._many(level, fine)
        orthogonal = np.zeros(QUANTITIES)
        if self.law.n:
            change, orthogonal = self._orthogonal(row, value)
            value = value + change
        return Estimate(value, features, error_fine, orthogonal)

    def _given(self, level, fine):
        before = self.given.nodes
        found = self.given.estimate(10.0**(-level / 2), fine, self.budget)
        self.nodes += self.given.nodes - before
        return found

    def _many(self, level, fine):
        used = [max(fine - l, 1 if l <= fine else 0) for l in range(level + 1)]
        terms = [self.feature_term(l, j, fine) for l, j in enumerate(used)]
        value = sum(term.value for term in terms)
        scale = self.scale(value)
        sizes = [size_of(term.value, scale) for term in terms]
        error = 0.3 * np.abs(terms[0].value - self.feature_term(0, fine - 1, fine).value)
        error = error + 0.3 * np.abs(terms[0].value - self._coarser_y(fine).value)
        error = error + sum(term.rounding for term in terms)
        off = {j: size_of(self.feature_term(1, j, fine).value - terms[1].value, scale) for j in {*used[2:], used[1] - 1}}
        off[used[1]] = 0.2 * off[used[1] - 1]
        for j, size in zip(used[1:], sizes[1:]):
            error = error + min(1.0, off[j] / max(sizes[1], 1e-300)) * size * scale
        return value, _tail(terms[-1].value, sizes, scale, self.trust), error

    def spent(self, max_nodes):
        """Would a further refinement go beyond max_nodes?  The series around the mean grows by some four times."""
        given = sum(one.nodes for one in (self.given, self.pairs) if one)
        return given > 1.5 * self.budget or given + 4 * (self.nodes - given) > max_nodes

    def _coarser_y(self, fine):
        """t_0 with the rule for y of the level before."""
        def compute():
            inner = self._inner(fine, 1, fine, 1)
            n_y, reach, _ = REST[fine - 1]
            t, weights = normal_trapezoid(int(n_y * self.wide), reach)
            inner = inner._replace(base=inner.base._replace(t=t, t_weights=weights))
            return self._integrate(np.zeros((1, 0)), np.ones(1), inner)
        return self._once(("y", fine), compute)

    def control(self):
        """(base, t_0) for sampling, or None if t_0 is not known to nine digits: then it is of no use."""
        last = len(REST) - 1
        expected, rough = self.feature_term(0, last, last), self.feature_term(0, last - 1, last)
        off = np.abs(expected.value - rough.value) + np.abs(expected.value - self._coarser_y(last).value)
        if not np.all(off[:7] <= 1e-9 * self.scale(expected.value)[:7]):
            return None
        return self._inner(last, 1, last, 1).base, expected.value

    def _orthogonal(self, row, value):
        if self.pairs:
            before = self.pairs.nodes
            found = self.pairs.estimate(10.0**(-row / 2), 2 * self.budget, value)
            self.nodes += self.pairs.nodes - before
            return found
        k, scale = self.law.D - 1, self.scale(value)
        terms = [self.orthogonal_term(o, row) for o in range(min(len(ORTHOGONAL[row]), k + 1))]
        sizes = [size_of(term.value, scale) for term in terms]
        causes = [sum(term.rounding for term in terms)]                    # independent: they add up as squares

        def count(share, values):
            causes.append(share * (np.abs(values) + 0.3 * size_of(values, scale) * scale))
        for o, term in enumerate(terms):
            known = o < len(ORTHOGONAL[row - 1])           # a term that is new in this row is taken to be good to 15 %
            before = self.orthogonal_term(o, row - 1).value if known else 0.0
            count(0.25 if known else 0.15, term.value - before)
            if o > 1:                                      # rho off its mean, or fourth moments of angles, are not in
                _, _, n_rho, _, n_cosine = ORTHOGONAL[row][o]
                n, b = self.law.n, self.law.b
                missing = 0.25 / n + 8 * b * b * n if n_rho == 1 else 0.1 / n + b * b * n if n_cosine == 2 else 0.0
                count(missing, term.value)
        if len(terms) <= k:
            count(min(max(sizes[-1] / max(sizes[-2], 1e-300), 0.1), 1.0), terms[-1].value)
        wide = 1 + 4 * self.law.b**2 * self.law.n          # beyond b^2 n = 1 the series in b is no series
        return sum(term.value for term in terms), wide * np.linalg.norm(causes, axis=0)


def sparse_grid(law, layer, s_irr, lengths, worst, rtol, max_nodes, base=None):
    """Value (8,), error (8,), nodes: parts of the grid are refined, each as its error demands, until `worst` <= rtol.

    `worst(value, error)` is the relative error that counts; base: as `ExchangeableGrid`.  Where the
    terms do not fall the grid is out of its range: it stops, and its error says so (if nothing is known: value 0, error
    `NOTHING_KNOWN`).
    """
    grid = ExchangeableGrid(law, layer, s_irr, lengths, base)
    grid.budget = max_nodes // 2
    level = math.ceil(0.6 - 2 * math.log10(rtol)) if grid.given else 2
    fine = min(max(1 + round(-0.75 * math.log10(rtol)), 2), 7)
    state = [level, fine, level if grid.pairs else 1]                      # level, fine, row
    limits = (level + 6 if grid.given else len(RULES), len(RELEVANT) - 1,
              level + 6 if grid.pairs else len(ORTHOGONAL) - 1)
    history = []                               # (total, value, error)
    while True:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found = grid.estimate(*state)
        value, error = found.value, found.error
        if not np.all(np.isfinite(value) & np.isfinite(error)):
            return np.zeros(QUANTITIES), np.full(QUANTITIES, NOTHING_KNOWN), grid.nodes
        if history:                            # no credit for an error estimate that the refinement itself contradicts
            _, last, last_error = history[-1]
            error = np.maximum(error, 0.5 * np.maximum(np.abs(value - last) - last_error, 0.0))
        history.append((worst(value, error), value, error))
        totals = [total for total, _, _ in history]
        parts = [worst(value, part) for part in (found.features, found.fine, found.orthogonal)]
        wanted = [part >= min(max(parts), max(0.6 * rtol, max(parts) / 3)) for part in parts]
        stuck = any(want and now == limit for want, now, limit in zip(wanted, state, limits))
        stalled = len(totals) > 3 and min(totals[-3:]) > 0.5 * totals[-4]
        if totals[-1] <= rtol or not totals[-1] < 1 or stuck or stalled or grid.spent(max_nodes):
            break
        state = [now + want for now, want in zip(state, wanted)]
    # the smallest claim that the last value does not contradict
    held = [step for step in history if np.all(np.abs(step[1] - value)[:7] <= step[2][:7])]
    _, value, error = min(held, key=lambda step: step[0])
    return value, error, grid.nodes


def _tail(last, sizes, scale, trust):
    """The sum of a geometric series that goes on from `last`, with the slowest of the last two ratios of `sizes`.

    Terms can be small by chance (two of their parts cancel): none is trusted to be less than `trust` of its precursor.
    """
    if len(sizes) == 1:
        return np.full(QUANTITIES, np.inf)
    size = max(sizes[-1], trust * sizes[-2])
    if size == 0:
        return np.zeros(QUANTITIES)
    ratio = size / max(sizes[-2], 1e-300)
    if len(sizes) > 2:
        ratio = max(ratio, math.sqrt(size / max(sizes[-3], 1e-300)))
    ratio = min(ratio, 0.9)
    return SAFETY * ratio / (1 - ratio) * (np.abs(last) + (1.5 * size - sizes[-1]) * scale)
