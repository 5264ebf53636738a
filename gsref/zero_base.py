"""What are loss and velocity on a sparse grid around zero features, every group given, refined where it counts?

Terms of the Smolyak rule are partitions: how fine the rule is for the groups that are away from zero.  A set of them
grows where terms are largest, and is closed: with a partition it holds all that are coarser.  Groups of equal feature
are taken together, so a term costs the same at every D.  |w|^2 is at its mean and angles are averaged.
Everything is at unit sigma; values are arrays (8,), see `mean_token.integrand`.  Source: derivations/06_quadrature.md.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gsref.conditional import orbit_sums
from gsref.mean_token import size_of
from gsref.quadrature import half_normal_rule, normal_rule
from gsref.sparse_grid import arrangements, children, grouped_orbits, parents

# nodes for m_r; each a digit better than the one before
RELEVANT = (6, 9, 12, 18, 26, 36, 48, 64, 90)
LEAST_FINE = 2
MOST_GIVEN = 19                                # groups: above, the series around the mean group is the better one
WIDEST = 1.0                                   # s_irr: above, terms in the sum of all features alternate (see tests)
BLOCK = 2**17                                  # doubles in the largest temporary: 1 MB
SAFETY = 2.5                                   # empirical, see the tests of honest errors
TRUST = 0.02                                   # a term may be small by chance, but not below this share of its parents


def _odd_rule(n):
    x, w = normal_rule(n)
    x = x.copy()
    x[n // 2] = 0.0                            # exactly: there it is the base
    return x, w


# Q_l, l = 1, 2, ..: odd Gauss rules, some 1.5 times as many nodes each
RULES = tuple(_odd_rule(n) for n in (5, 9, 15, 23, 35, 51, 71, 101))


@lru_cache(maxsize=1024)
def _orbits(partition):
    return grouped_orbits(partition, RULES)


class Part(NamedTuple):
    """A term: value (8,), rounding (8,) = eps times the sum of absolute values."""

    value: np.ndarray
    rounding: np.ndarray


class ZeroBase:
    """The terms that were computed, and the set of partitions that they are summed over  [quad.11].

    law: mean_token.Law; layer: width over which the loss changes with m_r; scale(value) -> units (8,) of errors.
    """

    def __init__(self, law, layer, scale):
        self.law, self.layer, self.scale, self.k = law, layer, scale, law.D - 1
        self.done, self.nodes, self.fine = {}, 0, None

    def term(self, partition, fine):
        """The term of `partition` with RELEVANT[fine]."""
        key = partition, fine
        if key not in self.done:
            m_r, w_r = half_normal_rule(RELEVANT[fine], self.layer)
            w_r = w_r / w_r.sum()
            m, count, weights = _orbits(partition)
            weights = arrangements(partition, self.k) * weights
            step = max(1, BLOCK // (m.shape[1] * max(m.shape[1], len(m_r))))
            value, size = np.zeros(8), np.zeros(8)
            for start in range(0, len(weights), step):
                i = slice(start, start + step)
                number = count[i].copy()
                number[:, 0] += self.k
                with np.errstate(over="ignore", invalid="ignore"):          # far out of range it overflows
                    h = orbit_sums(self.law, m_r, w_r, m[i], number)
                    value, size = value + weights[i] @ h, size + np.abs(weights[i]) @ np.abs(h)
            self.nodes += len(weights) * len(m_r)
            self.done[key] = Part(value, np.finfo(float).eps * size)
        return self.done[key]

    def estimate(self, target, fine, max_nodes):
        """(value, error of the set, error of the rule for m_r), each (8,): the set grows until `target` or `max_nodes`.

        The error of the set counts every term that was not followed by finer ones; `target` is for its largest part.
        """
        found, used, size = {}, {}, {}

        def add(partition):
            expected = min((size[parent] for parent in parents(partition)), default=1.0)
            level, now = self._fine_for(expected, fine), -1
            while level > now:                 # larger than expected: once more, as finely as that takes
                now = level
                found[partition] = self.term(partition, now)
                scale = self.scale(found[()].value)
                size[partition] = max(_size(found[partition].value, scale), TRUST * expected)
                level = self._fine_for(size[partition], fine)
            used[partition] = now

        add(())
        open_ = {()}
        while open_ and (len(found) == 1
                         or math.inf > sum(size[p] for p in open_) > target and self.nodes <= max_nodes):
            best = max(open_, key=lambda p: size[p] / len(_orbits(p)[2]))
            open_.remove(best)
            for child in sorted(children(best, self.k, len(RULES))):
                if all(parent in found and parent not in open_ for parent in parents(child)):
                    add(child)
                    open_.add(child)
        value = sum(term.value for term in found.values())
        scale = self.scale(value)
        error = SAFETY * sum((np.abs(found[p].value) + 0.3 * size[p] * scale for p in open_), np.zeros(8))
        return value, error, self._fine_error(found, used, size, fine, scale)

    @staticmethod
    def _fine_for(size, fine):
        """Index into RELEVANT for a term of this size: small terms need fewer digits."""
        digits = -math.log10(min(max(size, 1e-30), 1.0))
        return max(fine - int(0.75 * digits), min(fine, LEAST_FINE))

    def _fine_error(self, found, used, size, fine, scale):
        first, rounding = found[()].value, sum(term.rounding for term in found.values())
        error = 0.3 * np.abs(first - self.term((), fine - 1).value) + rounding
        pair = [p for p in ((1,), (1, 1)) if p in found]
        whole = max(sum(size[p] for p in pair), 1e-300)
        off = {j: sum(_size(self.term(p, j).value - self.term(p, fine).value, scale) for p in pair)
               for j in {*used.values(), fine - 1} - {fine}}
        off[fine] = 0.2 * off[fine - 1]
        return error + sum(min(1.0, off[used[p]] / whole) * size[p] for p in found if p) * scale


def _size(v, scale):
    """`size_of`, infinite where far out of range it is no number."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        size = size_of(v, scale)
    return size if math.isfinite(size) else math.inf
