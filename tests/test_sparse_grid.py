"""Orbits: their number, their weights, and the degree up to which they are exact and beyond which they are not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial.hermite_e import hermegauss

from gsref.sparse_grid import arrangements, children, grouped_orbits, orbits, parents, partitions


def odd_gauss(level):
    """Gauss rules for N(0, 1) with 3, 5, .. nodes; the middle node is exactly the base 0."""
    rules = []
    for l in range(1, level + 1):
        x, w = hermegauss(2 * l + 1)
        x[l] = 0.0
        rules.append((x, w / w.sum()))
    return rules


def integral(groups, k, h):
    """The rule applied to a function of all k values; tokens at the base are zeros."""
    total = 0.0
    for group in groups:
        for nodes, weight in zip(group.nodes, group.weights):
            total += weight * h(np.concatenate([nodes[:, 0] if group.q else [], np.zeros(k - group.q)]))
    return total


def test_numbers_of_orbits():
    """Independent of k, as long as k >= L."""
    for k in (7, 20, 1000):
        counts = [sum(len(group.weights) for group in orbits((0.0,), odd_gauss(L), L, k)) for L in range(1, 8)]
        assert counts == [3, 10, 28, 75, 185, 443, 1011]


@pytest.mark.derives("quad.3")
@given(st.integers(0, 5), st.integers(1, 40))
def test_weights_sum_to_one(level, k):
    groups = orbits((0.0,), odd_gauss(level), level, k)
    assert sum(group.weights.sum() for group in groups) == pytest.approx(1, abs=1e-10)
    assert all(group.q <= min(level, k) for group in groups)


@pytest.mark.derives("quad.3")
@pytest.mark.parametrize("level, k", [(1, 2), (2, 3), (2, 9), (3, 4), (4, 6)])
def test_exact_up_to_its_degree_and_not_beyond(level, k):
    """Q_l is exact to degree 4l + 1.  Symmetric sums of prod x_i^(2 e_i) are exact if sum_i (levels needed) <= L."""
    groups = orbits((0.0,), odd_gauss(level), level, k)

    def moment(powers):
        """E of the mean of prod x_i^powers over all ways to choose the tokens, by the rule and exactly."""
        def h(x):
            # elementary and power sums give every symmetric monomial that is tested
            if len(powers) == 1:
                return np.sum(x**powers[0])
            return math.factorial(len(powers)) * elementary(x**powers[0], len(powers))
        exact = math.prod(math.prod(range(1, p, 2)) for p in powers) * math.perm(k, len(powers))
        return integral(groups, k, h), exact

    def elementary(values, order):
        e = [1.0] + [0.0] * order
        for value in values:
            for j in range(order, 0, -1):
                e[j] += value * e[j - 1]
        return e[order]
    for power in range(2, 4 * level + 2, 2):                               # one token: degree 4L + 1
        found, exact = moment((power,))
        assert found == pytest.approx(exact, rel=1e-9)
    found, exact = moment((4 * level + 2,))
    assert abs(found / exact - 1) > 1e-3
    for tokens in range(1, min(level, k) + 1):                             # up to L tokens squared, each needs level 1
        found, exact = moment((2,) * tokens)
        assert found == pytest.approx(exact, rel=1e-9)
    if k > level:
        found, exact = moment((2,) * (level + 1))
        assert abs(found / exact - 1) > 1e-3


@pytest.mark.derives("quad.2")
@given(st.integers(1, 9), st.integers(1, 6))
def test_arrangements_count_every_level_vector_once(total, k):
    """sum over partitions of `total` = number of vectors of k non-negative integers with that sum."""
    found = sum(arrangements(pi, k) for pi in partitions(total) if len(pi) <= k)
    assert found == math.comb(total + k - 1, k - 1)


def test_increments_add_up_to_the_rule():
    rules, k = odd_gauss(4), 6

    def h(x):
        return np.exp(0.3 * x.sum() - 0.1 * (x**2).sum())
    parts = [integral(orbits((0.0,), rules, l, k, least=l), k, h) for l in range(5)]
    assert sum(parts) == pytest.approx(integral(orbits((0.0,), rules, 4, k), k, h), rel=1e-12)
    # and they converge to the product of one-dimensional integrals, E exp(t x - s x^2)
    exact = (np.exp(0.3**2 / (2 * 1.2)) / np.sqrt(1.2))**k
    errors = np.abs(np.cumsum(parts) - exact)
    assert errors[4] < 1e-4 < errors[1]


def test_base_that_is_no_node_and_several_coordinates():
    """A base outside the rules keeps all nodes; nodes may have any number of coordinates."""
    nodes = np.array([[-1.0, 2.0], [0.0, 1.0], [1.0, 2.0]])
    groups = orbits((), [(nodes, np.array([0.25, 0.5, 0.25]))], 1, 5)
    assert [group.nodes.shape for group in groups] == [(1, 0, 0), (3, 1, 2)]
    np.testing.assert_allclose(groups[0].weights, [1 - 5])
    np.testing.assert_allclose(groups[1].weights, [1.25, 2.5, 1.25])


def test_too_high_a_level_is_refused():
    with pytest.raises(ValueError, match="level: got 3, expected at most 2"):
        orbits((0.0,), odd_gauss(2), 3, 4)


@pytest.mark.derives("quad.11")
@pytest.mark.parametrize("level, k", [(2, 2), (3, 9), (4, 40)])
def test_grouped_orbits_are_the_same_rule(level, k):
    """Summed over all partitions up to `level` they are `orbits`; equal values are counted, not listed."""
    def h(values, count):
        return np.exp(0.2 * (values * count).sum() - 0.05 * (values**2 * count).sum())
    total = 0.0
    for size in range(level + 1):
        for partition in partitions(size):
            if len(partition) <= k:
                nodes, count, weights = grouped_orbits(partition, odd_gauss(level))
                count = count + k * (np.arange(count.shape[1]) == 0)
                assert np.all(count.sum(axis=1) == k) and np.all(nodes[:, 0] == 0)
                total += arrangements(partition, k) * sum(w * h(x, c) for x, c, w in zip(nodes, count, weights))
    wanted = integral(orbits((0.0,), odd_gauss(level), level, k), k, lambda x: h(x, np.ones(k)))
    # rounding: the absolute weights add up to some 1e5
    assert total == pytest.approx(wanted, rel=1e5 * np.finfo(float).eps)


@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 4))
def test_parents_and_children_are_inverse(total, k, level):
    for partition in partitions(total):
        for parent in parents(partition):
            assert sum(parent) == total - 1
            if len(partition) <= k and max(partition) <= level:
                assert partition in children(parent, k, level)
        for child in children(partition, k, level):
            assert partition in parents(child) and sum(child) == total + 1
