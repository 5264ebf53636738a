"""One-dimensional rules: exact up to their degree, and not beyond; the trapezoid where Gauss-Hermite fails."""

import math

import numpy as np
import pytest
from scipy.special import gammaln

from gsref.quadrature import (chi_square_rule, cosine_rule, half_normal_rule, normal_rule, normal_trapezoid,
                              shifted_half_normal_rule, sobol_normals)


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_normal_rule_is_exact_to_degree_2n_minus_1(n):
    x, w = normal_rule(n)
    for power in range(0, 2 * n, 2):
        assert w @ x**power == pytest.approx(math.prod(range(1, power, 2)), rel=1e-12)
    assert abs(w @ x**(2 * n) / math.prod(range(1, 2 * n, 2)) - 1) > 1e-4


@pytest.mark.parametrize("freedom", [1, 2, 3, 63, 999])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_chi_square_rule_is_exact_to_degree_2n_minus_1(n, freedom):
    """Also at freedoms where Gauss-Laguerre weights overflow in the usual scaling."""
    x, w = chi_square_rule(n, freedom)

    def moment(power):
        return math.exp(power * math.log(2) + gammaln(freedom / 2 + power) - gammaln(freedom / 2))
    for power in range(2 * n):
        assert w @ x**power == pytest.approx(moment(power), rel=1e-11)
    centred = w @ (x / freedom - 1)**(2 * n)
    exact = sum(math.comb(2 * n, j) * (-1)**j * moment(2 * n - j) / freedom**(2 * n - j) for j in range(2 * n + 1))
    if freedom < 50:
        assert abs(centred / exact - 1) > 1e-3


@pytest.mark.parametrize("dimension", [2, 3, 4, 64, 1000])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_cosine_rule_is_exact_to_degree_2n_minus_1(n, dimension):
    """E cos^(2p) = prod_{j < p} (2j + 1)/(dimension + 2j)."""
    x, w = cosine_rule(n, dimension)
    for p in range(n):
        exact = math.prod((2 * j + 1) / (dimension + 2 * j) for j in range(p))
        assert w @ x**(2 * p) == pytest.approx(exact, rel=1e-11)
    wrong = w @ x**(2 * n) / math.prod((2 * j + 1) / (dimension + 2 * j) for j in range(n)) - 1
    assert abs(wrong) > 1e-3
    x, w = cosine_rule(n, 1)
    assert sorted(x) == [-1, 1] and w.sum() == 1


def test_trapezoid_converges_where_gauss_hermite_does_not():
    """E 1/(1 + e^(20 (x - 0.3))): nearest poles at distance pi/20.  The reference is a spacing four times finer."""
    def h(x):
        return 1 / (1 + np.exp(20 * (x - 0.3)))
    (fine, wf), (x, w), (g, wg) = normal_trapezoid(1201, 8.5), normal_trapezoid(301, 8.5), normal_rule(60)
    exact = wf @ h(fine)
    assert abs(w @ h(x) - exact) < 1e-7
    assert abs(wg @ h(g) - exact) > 1e-3


@pytest.mark.parametrize("layer", [1.0, 1e-2, 1e-6])
def test_half_normal_rules_resolve_a_layer(layer):
    """E exp(-z/layer): e^(s^2/2) erfc(s/sqrt 2) with s = 1/layer, about sqrt(2/pi) layer when that is small."""
    s = 1 / layer
    exact = 0.5231565 if layer == 1 else math.sqrt(2 / math.pi) * layer * (1 - layer**2 + 3 * layer**4)
    for x, w in (half_normal_rule(40, layer), shifted_half_normal_rule(80, layer, 0.4)):
        assert w @ np.exp(-s * x) == pytest.approx(exact, rel=2e-7)
        assert w.sum() == pytest.approx(1, rel=2e-7)
    if layer < 1e-3:
        x, w = half_normal_rule(40, 1.0)                                   # without the layer it is missed
        assert abs(w @ np.exp(-s * x) / exact - 1) > 0.1


def test_sobol_normals_are_normal_cached_and_read_only():
    points = sobol_normals(3, 0, 4096, 1)
    assert points.shape == (4096, 3) and points is sobol_normals(3, 0, 4096, 1) and not points.flags.writeable
    np.testing.assert_allclose([points.mean(), (points**2).mean(), (points**4).mean()], [0, 1, 3], atol=0.02)
    np.testing.assert_array_equal(sobol_normals(3, 1024, 512, 1), points[1024:1536])
    assert sobol_normals(300, 0, 64, 1).shape == (64, 300)
