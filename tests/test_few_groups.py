"""Few groups on an equally spaced grid: the multisets are the full product, the error is what it says."""

import numpy as np
import pytest

from gsref import OrderParameters, Problem
from gsref.exchangeable import ExchangeableGrid
from gsref.few_groups import FewGroups, FewOrthogonal, spaced_multisets
from gsref.population import reduced_law, velocity_scales

# (D, alpha, a, m_rr, m_ro, m_oo): late on paths of training, where attention turns sharply
LATE = ((2, 6.68, -0.38, 2.4, 1.9, -1.9), (3, 4.73, -0.3, 3.2, 2.9, -1.3),
        (4, 3.275, -0.29445, 3.2812, 3.0329, -0.87234))


def few(D, values):
    problem, order = Problem(1, D), OrderParameters(values[0], values[1], 0, *values[2:])
    law, layer, s_irr = reduced_law(problem, order)
    lengths = 1 / velocity_scales(problem)
    return FewGroups(law, layer, ExchangeableGrid(law, layer, s_irr, lengths).scale)


@pytest.mark.derives("quad.12")
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_multisets_are_the_full_product(k):
    """Moments of the normal law, also mixed ones; the sum over the full product is the same up to what is cut."""
    m, w = spaced_multisets(k, 0.7, 7.5)
    square = (m**2).sum(axis=1)
    np.testing.assert_allclose([w.sum(), w @ square, w @ square**2], [1, k, k * (k + 2)], rtol=1e-8)
    assert np.all(np.diff(m, axis=1) >= 0) and np.all(square <= 7.5**2)
    if k < 4:
        x = 0.7 * np.arange(-10, 11)
        p = np.exp(-x * x / 2)
        grid = np.stack(np.meshgrid(*[x] * k, indexing="ij")).reshape(k, -1)
        weights = np.prod(np.stack(np.meshgrid(*[p / p.sum()] * k, indexing="ij")).reshape(k, -1), axis=0)
        wanted = weights @ np.cos(grid.sum(axis=0) + grid.prod(axis=0))
        np.testing.assert_allclose(w @ np.cos(m.sum(axis=1) + m.prod(axis=1)), wanted, atol=1e-9)


@pytest.mark.derives("quad.12")
def test_error_falls_as_the_distance_of_the_singularity_says():
    """E 1/(1 + (x1 + x2)^2/(2 w^2)), one singularity, w away along the diagonal: log error ~ -2 pi w sqrt 2/h."""
    def value(spacing, w=1.0):
        m, weights = spaced_multisets(2, spacing, 8.5)
        return weights @ (1 / (1 + m.sum(axis=1)**2 / (2 * w * w)))
    exact, spacings = value(0.2), np.array([1.2, 1.0, 0.85])
    errors = [abs(value(h) - exact) for h in spacings]
    slope = np.diff(np.log(errors)) / np.diff(1 / spacings)
    # in sheared coordinates (x1 + x2, x2) the sum has the singularity at w sqrt 2
    np.testing.assert_allclose(slope, -2 * np.pi * np.sqrt(2), rtol=0.15)


@pytest.mark.derives("quad.9")
@pytest.mark.parametrize("case", LATE)
def test_error_is_honest_and_met(case):
    D, *values = case
    rough, fine = few(D, values), few(D, values)
    value, error, _ = rough.estimate(1e-4, 0, 2**21)
    truth, truth_error, _ = fine.estimate(1e-5, 0, 2**21)
    scale = rough.scale(truth)
    assert np.all(np.abs(value - truth)[:7] <= (error + truth_error)[:7])
    assert np.max((error / scale)[:7]) <= 1.31e-4 and np.max((truth_error / scale)[:7]) <= 1.31e-5
    assert rough.nodes < fine.nodes <= 2**21
    # planted: the same at a scale of a that is off by a thousandth is told apart
    off = few(D, (values[0], 1.001 * values[1], *values[2:])).estimate(1e-4, 0, 2**21)[0]
    assert np.any(np.abs(off - truth)[:7] > (error + truth_error)[:7])


def test_budget_is_kept():
    late = few(3, (22.2, -0.34, 4.0, 3.8, -1.6))
    value, error, _ = late.estimate(1e-9, 0, 2**17)
    assert late.nodes <= 2**17 and np.max((error / late.scale(value))[:7]) > 1e-9


@pytest.mark.derives("quad.13")
@pytest.mark.parametrize("d, D", [(4, 2), (2, 2), (4, 3)])
def test_orthogonal_change_agrees_with_its_full_product(d, D):
    """Split sums against all directions refined together; the mixed difference is within the error."""
    problem = Problem(d, D)
    order = OrderParameters(1.8, -0.15, 0.03, 1.3, 1.2, -1.2 if D == 2 else -0.6)
    law, layer, s_irr = reduced_law(problem, order)
    grid = ExchangeableGrid(law, layer, s_irr, 1 / velocity_scales(problem))
    value = grid._given(8, 4)[0]
    split, scale = FewOrthogonal(law, layer, grid.scale), grid.scale(value)
    change, error = split.estimate(1e-3, 2**21, value)
    whole = FewOrthogonal(law, layer, grid.scale).value(1, 1, 3)
    assert np.all(np.abs(change - whole)[:7] <= error[:7])
    assert np.max((error / scale)[:7]) <= 1.31e-3 < 3e-3 < np.max((np.abs(change) / scale)[:7])
    # planted: the relevant group's length at its mean is told apart
    poor = FewOrthogonal(law, layer, grid.scale).value(1, 1, 0)
    assert np.any(np.abs(poor - whole)[:7] > error[:7])
