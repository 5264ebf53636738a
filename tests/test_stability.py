"""Multipliers against runs of all parameters, the growth of rounding against a simulation, and the stable rate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsref.descent import descend
from gsref.order import OrderParameters
from gsref.problem import Problem
from gsref.second_derivative import Block, second_derivative
from gsref.stability import (BROKEN, EPS, Thinned, _Perturbations, describe, extreme_multipliers, growth,
                             largest_multiplier, size_of, stable_eta, thinned)


@pytest.mark.derives("stability.7")
@given(st.floats(1e-4, 10), st.integers(2, 20))
def test_largest_multiplier_is_the_largest_of_all_blocks_and_keeps_its_sign(eta, D):
    problem = Problem(3, D)
    m_ro = 0.4
    order = OrderParameters(0.5, 0, 0, 0.3, m_ro, -m_ro if D == 2 else 0.1)
    multiplier, name, error = largest_multiplier(problem, order, eta, "position_only")
    every = {b.name: 1 - eta * b.curvatures for b in second_derivative(problem, order, "position_only")}
    assert abs(multiplier) == max(np.abs(values).max() for values in every.values())
    low, high = extreme_multipliers(problem, order, eta, "position_only")
    assert low[0] == min(values.min() for values in every.values()) and high[0] == max(v.max() for v in every.values())
    assert multiplier in every[name] and 0 <= error < 1e-9 * max(1, abs(multiplier))


def test_start_of_training_is_unstable_beyond_16_over_D_D_plus_1():
    for D in (2, 8, 50):
        edge = 16 / (D * (D + 1))
        below, above = (largest_multiplier(Problem(1, D), OrderParameters(), share * edge, "position_only")[0]
                        for share in (0.999, 1.001))
        assert abs(below) <= 1 < abs(above) and above < 0


def test_full_mode_reports_an_error_that_covers_the_finer_value():
    problem, order = Problem(2, 4), OrderParameters(0.4, -0.1, 0.01, 0.5, 0.3, 0.1)
    rough, name, error = largest_multiplier(problem, order, 2.0, rtol=0.05)
    fine, same, finer = largest_multiplier(problem, order, 2.0, rtol=0.004, seed=1)
    assert name == same == "v2,W12,W21" and finer < error and abs(rough - fine) <= error + finer


@pytest.mark.derives("stability.8")
def test_covariance_is_that_of_a_simulation():
    rng = np.random.default_rng(0)
    H = np.array([[3.0, 0.4, 0.1], [0.4, -0.5, 0.3], [0.1, 0.3, 0.0]])
    blocks, eta, noise, runs, jumps = [Block("x", H, 0.0, 1)], 0.8, 1e-3, 20000, (1, 4, 3)
    exact, steps = _Perturbations(), np.eye(3) - eta * H
    x = np.zeros((runs, 3))
    for jump in jumps:
        residual = exact.advance(blocks, eta, jump, noise)
        for _ in range(jump):
            x = x @ steps + noise * rng.standard_normal((runs, 3))
    square = (x**2).sum(axis=1)
    # a mean of 20000 squares: within 5 standard errors (one false alarm in 10^6)
    assert abs(square.mean() - residual**2) <= 5 * square.std() / np.sqrt(runs)


def test_copies_add_up_and_neutral_directions_gather_noise_like_a_walk():
    found = _Perturbations().advance([Block("x", np.zeros((2, 2)), 0.0, 7)], 1.0, 100, 1e-16)
    assert found == pytest.approx(1e-16 * np.sqrt(7 * 2 * 100), rel=1e-9)


def test_growth_without_end_stays_finite():
    assert np.isfinite(_Perturbations().advance([Block("x", np.eye(2) * 100, 0.0, 3)], 1.0, 10**6, 1e-16))


def test_predicted_step_follows_from_the_product_of_multipliers():
    problem, eta = Problem(1, 8), 0.5
    path = descend(problem, eta, 60, "position_only")
    found = growth(problem, path, eta, "position_only")
    assert found.broken == found.step[-1] and set(found.block) == {"v2"}
    by_hand = EPS * size_of(problem, path.order[1]) * np.cumprod(np.abs(found.multiplier[1:]))
    first = 2 + np.argmax(by_hand > BROKEN * found.size[1:])
    assert abs(found.broken - first) <= 2                  # other directions and later noise: two steps at most


def test_sparse_rows_predict_what_all_rows_do():
    problem, eta = Problem(1, 4), 0.9
    path = descend(problem, eta, 400, "position_only")
    every = growth(problem, path, eta, "position_only", until_broken=False)
    thin = Thinned(path.step[::4], path.order[::4])
    rough = growth(problem, thin, eta, "position_only", until_broken=False)
    ratio = np.log(rough.residual[1:] / every.residual[4::4])
    assert np.abs(ratio).max() < 1.5


def test_description_of_a_run():
    problem = Problem(1, 8)
    lines = describe(problem, descend(problem, 0.5, 60, "position_only"), 0.5, "position_only")
    assert len(lines) == 4 and "from -3.5 +- " in lines[0] and "(v2)" in lines[1] and "breaks the symmetry" in lines[3]
    path = descend(problem, 0.1, 1000, "position_only")
    assert "rounding stays" in describe(problem, path, 0.1, "position_only")[3]


def test_thinned_keeps_early_rows_and_ends():
    path = descend(Problem(1, 4), 0.1, 1000, "position_only")
    few = thinned(path)
    assert few.step[:12].tolist() == list(range(12)) and few.step[-1] == 1000 and len(few.step) < 50
    assert thinned(path, until=100).step[-1] == 100
    np.testing.assert_array_equal(few.order, path.order[np.searchsorted(path.step, few.step)])


def test_thinned_reaches_steps_that_no_integer_holds():
    step = np.concatenate([np.arange(13.0), np.geomspace(14, 1e30, 4000)])
    few = thinned(Thinned(step, np.arange(len(step))))
    assert few.step[-1] == 1e30 and np.max(np.diff(np.log10(few.step[12:]))) < 2 / 16


@pytest.mark.derives("stability.9")
@pytest.mark.parametrize("D", [2, 3, 8, 40])
def test_stable_rate_is_stable_and_not_much_smaller_than_need_be(D):
    problem, mode = Problem(2, D), "position_only"
    eta = stable_eta(problem, mode)

    def lowest(rate):
        path = descend(problem, rate, 10**9, mode, flow=1e-3, callback=lambda step, order, found: found.leak < 0.02)
        return min(extreme_multipliers(problem, OrderParameters.from_array(x), rate, mode)[0][0] for x in path.order)
    assert lowest(eta) >= -1
    assert lowest(1.12 * eta) < -1                         # the margin is 0.95
    assert 16 / (D**2 * (D + 1)) < eta <= 16 / (D * (D + 1))


def test_stable_rate_in_full_mode():
    problem = Problem(1, 3)
    eta = stable_eta(problem)
    assert 0.5 * 16 / 12 < eta <= 16 / 12


@pytest.mark.parametrize("arguments, message", [
    ({"problem": Problem(1, 3), "mode": "none"}, "mode: got 'none'"),
    ({"problem": Problem(1, 3), "margin": 2.0}, "margin: got 2")])
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        stable_eta(**arguments)
    with pytest.raises(ValueError, match="eta: got 0"):
        largest_multiplier(Problem(1, 3), OrderParameters(), 0.0)
