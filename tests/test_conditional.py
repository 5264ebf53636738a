"""Sampling and tensor rules: unbiased shifts, control by the mean group, samples of the right law."""

import numpy as np
import pytest
from scipy.special import erfc

from gsref import OrderParameters, Problem, conditional
from gsref.conditional import conditional_sums, orbit_sums, reduced_sample, rqmc, sampled_points, surrogate, tensor_points
from gsref.exchangeable import ExchangeableGrid
from gsref.mean_token import Base, integrand
from gsref.population import reduced_law, velocity_scales
from gsref.quadrature import half_normal_rule, shifted_half_normal_rule


@pytest.mark.derives("quad.10")
def test_random_shift_is_unbiased_for_a_jump_and_a_fixed_rule_is_not():
    """P(x > 1.3) for half-normal x: the mean over all shifts is exact; each fixed rule is off by a node's weight."""
    exact, layer = erfc(1.3 / np.sqrt(2)), 0.1
    shifts = (np.arange(4096) + 0.5) / 4096
    means = []
    for shift in shifts:
        x, w = shifted_half_normal_rule(24, layer, shift)
        means.append(w @ (x > 1.3))
    assert abs(np.mean(means) - exact) < 2e-4 and np.std(means) > 0.01
    x, w = half_normal_rule(24, layer)
    cuts = np.linspace(1, 2, 101)
    off = [w @ (x > cut) - erfc(cut / np.sqrt(2)) for cut in cuts]
    assert np.max(np.abs(off)) > 0.02


@pytest.mark.derives("quad.10")
def test_shifted_rule_is_accurate_at_any_shift_for_a_smooth_function():
    exact = np.exp(0.5 * 0.3**2)                                           # E exp(0.3 x), x over the whole line
    for shift in (0.0, 0.3, 0.77):
        x, w = shifted_half_normal_rule(60, 0.05, shift)
        assert 0.5 * (w @ (np.exp(0.3 * x) + np.exp(-0.3 * x))) == pytest.approx(exact, rel=1e-7)


def test_control_lowers_the_error_and_does_not_move_the_value():
    problem, order = Problem(3, 16), OrderParameters(0.3, -0.06, 0.01, 0.9, 0.9, -0.06)
    law, layer, s_irr = reduced_law(problem, order)
    control = ExchangeableGrid(law, layer, s_irr, 1 / velocity_scales(problem)).control()
    assert control is not None

    def never(value, error):
        return False
    plain, plain_error, _ = rqmc(law, layer, never, 2**18, 3)
    better, better_error, _ = rqmc(law, layer, never, 2**18, 4, control)
    assert np.all(np.abs(plain - better) <= 1.5 * (plain_error + better_error))
    assert better_error[0] < 0.5 * plain_error[0]
    wrong = control[0], control[1] * (1 + 1e-2)                            # planted: a wrong expectation is noticed
    moved, error, _ = rqmc(law, layer, never, 2**18, 4, wrong)
    assert abs(moved[0] - plain[0]) > plain_error[0] + error[0]


def test_points_drawn_in_pieces_are_the_same_points(monkeypatch):
    law, layer, _ = reduced_law(Problem(3, 16), OrderParameters(0.3, -0.06, 0.01, 0.9, 0.9, -0.06))
    whole = rqmc(law, layer, lambda *_: False, 2**17, 3)
    monkeypatch.setattr(conditional, "SAMPLED", 5 * 16**2)                 # four at once, of blocks of 16 and more
    for one, other in zip(rqmc(law, layer, lambda *_: False, 2**17, 3), whole):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-14)


def test_surrogate_is_close_to_the_groups_it_replaces():
    """At D = 64 the mean-group outputs at the sampled sum explain nearly all of the variance of the loss."""
    problem, order = Problem(1, 64), OrderParameters(0.12, -0.05, 0, 1.5, 1.5, -0.05)
    law, layer, s_irr = reduced_law(problem, order)
    base, expected = ExchangeableGrid(law, layer, s_irr, 1 / velocity_scales(problem)).control()
    rule = half_normal_rule(24, layer)
    points = sampled_points(1, 64, 0, 256, 5)
    h, g = conditional_sums(law, *rule, *points), surrogate(law, *rule, base)(points[0].sum(axis=1))
    assert np.var(h[:, 0] - g[:, 0]) < 0.02 * np.var(h[:, 0])
    assert abs(g[:, 0].mean() / expected[0] - 1) < 0.05


def test_samples_follow_the_law():
    """Second moments of 8192 inputs; Sobol points: five standard errors of independent sampling are generous."""
    problem, n = Problem(5, 6, relevant=2), 8192
    m, K = reduced_sample(problem, n, seed=1)
    assert m.shape == (n, 6) and K.shape == (n, 6, 6) and np.all(m[:, 2] >= 0)
    np.testing.assert_allclose((m**2).mean(axis=0), 1, atol=5 * np.sqrt(2 / n))
    np.testing.assert_allclose(K.mean(axis=0), 4 * np.eye(6), atol=5 * np.sqrt(4 * 6 / n))
    np.testing.assert_allclose((K[:, 0, 1]**2).mean(), 4, atol=5 * np.sqrt(100 / n))


@pytest.mark.derives("population.6")
def test_tensor_points_have_the_moments_of_the_law():
    for d, D in ((1, 2), (5, 2), (2, 2), (2, 3), (1, 3)):
        (m, K_oo, K_ro, K_rr), w = tensor_points(d, D, 6)
        n = d - 1
        np.testing.assert_allclose([w.sum(), w @ m[:, 0]**2, w @ m[:, -1]**4], [1, 1, 3], rtol=1e-12)
        found = [w @ K_rr, w @ K_ro[:, 0], w @ K_ro[:, 0]**2, w @ K_oo[:, 0, 0]**2]
        np.testing.assert_allclose(found, [n, 0, n, n * (n + 2)], atol=1e-10)


@pytest.mark.derives("population.5")
@pytest.mark.parametrize("d", [1, 4])
def test_equal_groups_taken_together_are_the_groups_one_by_one(d):
    law, layer, _ = reduced_law(Problem(d, 8), OrderParameters(0.8, -0.2, 0.03 * (d > 1), 2.0, 1.9, -0.2))
    rng, count = np.random.default_rng(3), np.array([[4.0, 1, 2], [5, 0, 2], [0, 6, 1]])
    x, (m_r, w_r) = rng.standard_normal((3, 3)), half_normal_rule(20, layer)
    found = orbit_sums(law, m_r, w_r, x, count)
    m = np.array([np.repeat(x[i], count[i].astype(int)) for i in range(3)])
    if d == 1:
        np.testing.assert_allclose(found, conditional_sums(law, m_r, w_r, m, np.zeros((3, 7, 7)), np.zeros((3, 7)),
                                                           np.zeros(3)), rtol=1e-12, atol=1e-15)
    one = Base(np.zeros(1), np.zeros(1), np.ones(1), np.zeros(1), np.ones(1))
    for i in range(3):
        given = np.repeat(m[i][:, None], 20, axis=1)
        wanted = integrand(law, m_r, given, np.full(20, d - 1.0), np.full((7, 20), d - 1.0), None, one) @ w_r
        np.testing.assert_allclose(found[i], wanted, rtol=1e-11, atol=1e-15)
