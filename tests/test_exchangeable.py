"""The sparse grid over groups: angles, series of orthogonal terms, exact cases, and errors that are what they say."""

import math

import numpy as np
import pytest

from gsref import OrderParameters, Problem, population
from gsref.exchangeable import ORTHOGONAL, ExchangeableGrid
from gsref.population import reduced_law, velocity_scales
from gsref.position_only import position_only
from gsref.quadrature import angle_rule
from honest import PATHS


def grid(d, D, order, base=None):
    problem = Problem(d, D)
    return ExchangeableGrid(*reduced_law(problem, order), 1 / velocity_scales(problem), base)


@pytest.mark.derives("quad.7")
@pytest.mark.parametrize("n", [1, 2, 3, 7, 999])
def test_angles_have_the_moments_of_uniform_directions(n):
    for q in (1, 2, 3):
        gram, w = angle_rule(q, n, 2)
        assert w.sum() == pytest.approx(1, abs=1e-13)
        for i in range(q + 1):
            for j in range(i):
                c = gram[:, i, j]
                np.testing.assert_allclose([w @ c, w @ c**2], [0, 1 / n], atol=1e-14)
        if q > 1:
            np.testing.assert_allclose(w @ (gram[:, 0, 1] * gram[:, 1, 2] * gram[:, 2, 0]), 1 / n**2, rtol=1e-10)
    four = 3 / (n * (n + 2))
    (two, w2), (three, w3) = angle_rule(1, n, 2), angle_rule(1, n, 3)
    np.testing.assert_allclose(w3 @ three[:, 0, 1]**4, four, rtol=1e-12)
    if n > 1:
        assert abs(w2 @ two[:, 0, 1]**4 / four - 1) > 0.1                  # two nodes are exact to degree 3, not to 4


@pytest.mark.derives("quad.8")
def test_orthogonal_terms_sum_to_the_change_with_all_groups_given():
    """Newton's series ends at k: with the same nodes in all orders, T_0 + .. + T_k = D_k to rounding."""
    terms, sizes, k = grid(3, 4, OrderParameters(1.0, -0.15, 0.05, 1.2, 1.1, -0.3)), (0, 2, 2, 2, 2), 3
    changes = [terms._change(q, sizes, 1).value for q in range(k + 1)]
    series = sum(math.comb(k, p) * math.comb(p, q) * (-1)**(p - q) * changes[q]
                 for p in range(k + 1) for q in range(p + 1))
    np.testing.assert_allclose(series, changes[k], rtol=1e-9, atol=1e-12)
    row = 2
    first = terms.orthogonal_term(1, row).value
    change = [terms._change(q, ORTHOGONAL[row][1], 2).value for q in (0, 1)]
    np.testing.assert_allclose(first, k * (change[1] - change[0]), rtol=1e-12)
    assert np.max(np.abs(changes[k])) > 1e-4


def test_position_only_attention_is_exact_at_level_zero():
    """With a = b = 0 every output is linear in y: t_0 is the exact value, at any alpha and any D."""
    for D, alpha in ((6, 0.3), (40, 0.8), (4000, 0.1)):
        order = OrderParameters(alpha, 0, 0, 1.0, 1.5, 0.2)
        value = grid(1, D, order).feature_term(0, 8, 8).value
        exact, _ = position_only(D, alpha, order)
        np.testing.assert_allclose(np.delete(value, [2, 3]), np.delete(exact, [2, 3]), rtol=1e-9)


@pytest.mark.derives("quad.9")
def test_series_around_the_mean_and_around_zero_agree_within_their_errors():
    """Two ways to the same number at D = 8: the series from the mean group, and every group given around zero."""
    terms = grid(1, 8, OrderParameters(0.4, -0.12, 0, 0.9, 0.8, -0.1))
    zero, many = terms._given(10, 6), terms._many(5, 6)
    assert np.all(np.abs(zero[0] - many[0])[:7] <= (zero[1] + zero[2] + many[1] + many[2])[:7])
    assert np.max(np.abs(zero[0] - many[0])[:7] / terms.scale(zero[0])[:7]) < 1e-5
    one = terms._many(1, 5)                                                # a rougher series is worse, and says so
    assert np.max(one[1][:7]) > 10 * np.max(many[1][:7])


@pytest.mark.derives("quad.9")
@pytest.mark.parametrize("row", range(2, len(PATHS), 5))
def test_errors_on_paths_are_honest_and_met(row):
    """A value at rtol 1e-3 is as near to one at 1e-5 as the two errors say, on paths of training."""
    D, d, *order = PATHS[row]
    problem, order = Problem(d, D), OrderParameters(*order)
    rough, fine = (population(problem, order, rule="sparse_grid", rtol=rtol) for rtol in (1e-3, 3e-5))
    assert rough.converged
    gap = np.abs(np.array([rough.loss - fine.loss, *(rough.velocity.to_array() - fine.velocity.to_array())]))
    error = np.array([rough.loss_error + fine.loss_error, *(rough.velocity_error + fine.velocity_error).to_array()])
    assert np.all(gap <= error + 1e-14)


def test_out_of_range_is_noticed():
    """Scores in the tens: the grid does not converge, its error says so, and auto goes on to another rule."""
    problem, order = Problem(4, 8), OrderParameters(3.7, -12.0, 0.8, 1.1, 4.0, -0.6)
    found = population(problem, order, rule="sparse_grid", max_nodes=2**16)
    assert not found.converged and found.loss_error > 0.01 * found.loss
    best = population(problem, order, max_nodes=2**16)
    assert best.rule == "rqmc" and best.loss_error < 0.5 * best.loss


def test_cost_does_not_depend_on_size():
    """At equal level the number of evaluations is the same at any D and d; large sizes keep their accuracy."""
    nodes = set()
    for D, d in ((12, 4), (64, 4), (4096, 4), (12, 1000)):
        terms = grid(d, D, OrderParameters(1 / np.sqrt(D), -0.1, 0.1 / d, np.log(D), np.log(D), -0.1), "mean")
        found = terms.estimate(2, 3, 1)
        nodes.add(terms.nodes)
        assert np.max((found.error / terms.scale(found.value))[:7]) < 5e-3
    assert len(nodes) == 1
