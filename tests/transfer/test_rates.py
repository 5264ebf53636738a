"""Error rates: closed forms against sampling and quadrature, honest errors, planted mistakes."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.integrate import quad
from scipy.stats import chi2, norm

from gsref import OrderParameters, Problem, forward
from gsref.transfer import rates
from gsref.transfer.rates import attention_error, attention_errors, linear_error, relevant_attention, sampled_error
from gsref.transfer.task import DownstreamTask


def unit(d, seed=0):
    v = np.random.default_rng(seed).standard_normal(d)
    return v / np.linalg.norm(v)


def a_task(margin, d=3, D=4, relevant=2, law="gaussian"):
    return DownstreamTask(Problem(d, D, relevant=relevant), unit(d), law, margin)


def a_predictor(task, along, seed=1):
    w = 0.5 * np.random.default_rng(seed).standard_normal((task.D, task.d))
    w[task.relevant] += along * task.direction
    return w


def a_model(task, along, scale, seed=2):
    rng = np.random.default_rng(seed)
    v, W = 0.5 * rng.standard_normal(task.d + task.D), scale * rng.standard_normal((task.d + task.D,) * 2)
    v[:task.d] += along * task.direction
    return v, W


def off(value, sampled):
    """Distance of a value from a sampled one, in its standard errors."""
    return abs(value - sampled[0]) / sampled[1]


@pytest.mark.derives("transfer.8")
@pytest.mark.parametrize("margin", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("along", [2.0, 0.1, -1.0])
def test_linear_error_against_sampling(margin, along):
    task = a_task(margin)
    w = a_predictor(task, along)
    value, error = linear_error(task, w)
    assert error < 1e-13
    assert off(value, sampled_error(task, lambda X: np.einsum("nji,ji->n", X, w), 200000, np.random.default_rng(3))) <= 4


def test_planted_error_in_a_closed_form_is_caught():
    # the rate of the task without margin, taken for the one with margin
    task, w = a_task(0.5), a_predictor(a_task(0.5), 2.0)
    wrong = linear_error(a_task(0.0), w)[0]
    assert off(wrong, sampled_error(task, lambda X: np.einsum("nji,ji->n", X, w), 200000, np.random.default_rng(3))) > 4


@given(margin=st.floats(0.01, 5), ratio=st.floats(0.01, 30))
@settings(max_examples=50)
def test_linear_error_against_quadrature(margin, ratio):
    task = a_task(margin, d=1, D=2, relevant=0)
    value, error = linear_error(task, np.array([[ratio * task.direction[0]], [1.0]]))
    end = np.sqrt(margin**2 + 90 / (1 + ratio**2))                     # beyond, exp(-45) of the integrand is left
    exact, bound = quad(lambda s: norm.pdf(s) * norm.cdf(-ratio * s), margin, end, epsabs=0, epsrel=1e-12, limit=200)
    assert abs(value - exact / norm.sf(margin)) <= error + bound / norm.sf(margin) + 1e-11 * value       # norm.cdf's own digits


@pytest.mark.parametrize("margin", [0.5, 1.9, 2.1, 5.0, 30.0])
@pytest.mark.parametrize("ratio", [0.0, 1e-3, 0.7, 1.0, 1.3, 3.0])
def test_linear_error_keeps_its_digits_in_the_tail(margin, ratio):
    # another route: in polar coordinates, Prob(X > h, Y > a X) = 1/(2 pi) int exp(-h^2/(2 cos^2)) over atan(a) .. pi/2
    task = a_task(margin, d=1, D=2, relevant=0)
    value, error = linear_error(task, np.array([[ratio * task.direction[0]], [1.0]]))
    start, shift = np.arctan(ratio), margin**2 * (1 + ratio**2) / 2
    end = np.arctan(np.sqrt(ratio**2 + 90 / margin**2))
    angle, bound = quad(lambda phi: np.exp(shift - margin**2 / (2 * np.cos(phi) ** 2)), start, end, epsabs=0, epsrel=1e-12)
    scale = np.exp(-shift - norm.logsf(margin)) / (2 * np.pi)
    assert abs(value - scale * angle) <= error + scale * bound + 1e-13 * shift * value
    assert 0 <= value <= 0.5 + error and error <= max(1e-9 * value, 1e-13)


def test_linear_error_without_margin_is_an_angle():
    task = a_task(0.0)
    w = a_predictor(task, 0.7)
    along = np.zeros_like(w)
    along[task.relevant] = task.direction
    angle = np.arccos(np.sum(w * along) / np.linalg.norm(w))
    assert linear_error(task, w)[0] == pytest.approx(angle / np.pi, rel=1e-13)
    assert linear_error(task, along)[0] <= linear_error(task, along)[1]            # 0 and 1, to the stated rounding
    assert 1 - linear_error(task, -along)[0] <= linear_error(task, -along)[1]
    assert linear_error(task, -w)[0] == pytest.approx(1 - angle / np.pi, rel=1e-13)
    assert linear_error(task, 1e3 * w)[0] == pytest.approx(angle / np.pi, rel=1e-13)


@pytest.mark.derives("transfer.9")
@pytest.mark.parametrize("margin, along, scale", [(0.0, 2.0, 0.3), (0.5, 2.0, 0.3), (0.5, -1.0, 1.0), (1.5, 1.0, 0.6),
                                                  (0.0, 0.0, 2.0)])
def test_attention_error_against_sampling(margin, along, scale):
    task = a_task(margin)
    v, W = a_model(task, along, scale)
    value, error = attention_error(task, v, W, 3000, np.random.default_rng(4))
    share, spread = sampled_error(task, lambda X: forward(v, W, X, task.problem.positions)[0], 40000, np.random.default_rng(5))
    assert abs(value - share) <= 4 * np.hypot(error, spread)
    assert error < spread * np.sqrt(40000 / 3000)                       # fewer digits are lost than by counting


@pytest.mark.parametrize("margin", [0.0, 0.5, 1.0])
def test_attention_error_is_the_linear_one_where_attention_is_fixed(margin):
    task = a_task(margin)
    _, W = OrderParameters(0, 0, 0, 2.0, 1.5, -0.5).to_params(task.problem)
    v = np.zeros(7)
    v[:3] = 1.5 * task.direction + 0.3 * unit(3, 8)
    _, S = forward(v, W, np.zeros((1, 4, 3)), task.problem.positions)
    exact, _ = linear_error(task, np.outer(S[0].sum(axis=1), v[:3]))
    value, error = attention_error(task, v, W, 4000, np.random.default_rng(6))
    assert abs(value - exact) <= 4 * error
    assert error <= np.sqrt(exact * (1 - exact) / 4000)                  # a conditional probability varies less than an indicator
    assert margin > 0 or error <= 0.05 * exact                           # and without margin far less


def test_small_errors_keep_a_relative_accuracy():
    task = a_task(0.0)
    _, W = OrderParameters(0, 0, 0, 30.0, 30.0, -10.0).to_params(task.problem)
    v = np.zeros(7)
    v[:3] = task.direction + 1e-5 * (unit(3, 8) - (unit(3, 8) @ task.direction) * task.direction)
    exact, _ = linear_error(task, np.outer(np.eye(4)[2] * 4, v[:3]))
    value, error = attention_error(task, v, W, 2000, np.random.default_rng(7))
    assert exact < 1e-5 and error < 0.05 * exact and abs(value - exact) <= 4 * error


def test_standard_errors_are_calibrated():
    # 40 repetitions: the scatter of the values against the error that each states (chi-square, false alarm 1e-4)
    task = a_task(0.3)
    v, W = a_model(task, 1.0, 0.4)
    found = np.array([attention_error(task, v, W, 200, np.random.default_rng(seed)) for seed in range(40)])
    ratio = np.sum((found[:, 0] - found[:, 0].mean()) ** 2) / np.mean(found[:, 1] ** 2)
    assert ratio <= chi2.isf(1e-4, 39)
    assert ratio >= chi2.ppf(1e-4, 39) / 2                               # the grid term makes it a little cautious


@pytest.mark.derives("transfer.10")
@given(seed=st.integers(0, 10**6), D=st.integers(1, 5), d=st.integers(1, 4))
@settings(max_examples=40)
def test_logit_along_the_label_is_the_logit(seed, D, d):
    task = a_task(0.0, d, D, seed % D)
    v, W = a_model(task, 1.0, 1.0, seed)
    X = np.random.default_rng(seed).standard_normal((1, 3, D, d))
    s = np.array([-6.0, -0.7, 0.0, 0.3, 4.0])
    f = rates._LogitAlongLabel(task, v[None], W[None], X.copy())(s)
    for k in range(3):
        for j, value in enumerate(s):
            moved = X[0, k:k + 1].copy()
            moved[0, task.relevant] += (value - moved[0, task.relevant] @ task.direction) * task.direction
            exact = forward(v, W, moved, task.problem.positions)[0][0]
            # scores reach some hundreds: a rounding error of a score is a relative error of S
            assert f[k, j] == pytest.approx(exact, rel=1e-10, abs=1e-10)


def test_models_in_a_batch_have_their_own_errors():
    task = a_task(0.5)
    models = [a_model(task, along, 0.3, seed) for along, seed in ((2.0, 1), (-2.0, 2), (0.0, 3))]
    v, W = (np.stack(part) for part in zip(*models))
    values, errors = attention_errors(task, v, W, 2000, np.random.default_rng(1))
    for k, model in enumerate(models):
        value, error = attention_error(task, *model, 2000, np.random.default_rng(2 + k))
        assert abs(value - values[k]) <= 4 * np.hypot(error, errors[k])


def test_wrong_mass_of_known_sets():
    grid = np.linspace(0.5, 9.5, 25)
    for f, exact in ((lambda s: s - 1.2, norm.cdf(1.2) - norm.cdf(0.5)), (lambda s: 1.2 - s, norm.sf(1.2)),
                     (lambda s: np.sin(s), norm.sf(np.pi) - norm.sf(2 * np.pi) + norm.sf(3 * np.pi)),
                     (lambda s: s + 0, 0.0), (lambda s: 0 * s, norm.sf(0.5))):
        mass = rates._wrong_mass(lambda rows, s: f(s), f(grid)[None], grid)
        assert mass[0] == pytest.approx(exact / norm.sf(0.5), abs=1e-9)


def test_two_zeros_in_one_cell_are_felt_by_the_coarse_grid():
    # f is negative between 1.0 and 1.3 only: seen at 1.125, a point of the grid of spacing 0.375 and not of that of 0.75
    grid = np.linspace(0, 9, 25)

    def f(s):
        return (s - 1.0) * (s - 1.3)
    fine = rates._wrong_mass(lambda rows, s: f(s), f(grid)[None], grid)
    coarse = rates._wrong_mass(lambda rows, s: f(s), f(grid[::2])[None], grid[::2])
    assert abs(fine - coarse)[0] > 0.05


def test_zeros_that_a_grid_may_miss_are_part_of_the_error(monkeypatch):
    # a step of attention in s so sharp that f changes sign twice within a cell of the coarse grid
    task, values = a_task(0.0), []
    v, W = a_model(task, 0.3, 6.0)
    for intervals in (24, 384):
        monkeypatch.setattr(rates, "INTERVALS", intervals)
        values.append(attention_error(task, v, W, 300, np.random.default_rng(3)))       # the same rest in both
    (rough, error), (fine, least) = values
    assert least < error and 0 < abs(rough - fine) <= 2 * (error - least)


def test_a_model_of_zero_is_always_wrong():
    task = a_task(0.5)
    assert attention_error(task, np.zeros(7), np.zeros((7, 7)), 10, np.random.default_rng(0)) == (1.0, 0.0)


@pytest.mark.parametrize("law", ["gaussian", "rademacher", "uniform"])
def test_sampled_error_never_claims_certainty(law):
    task = a_task(0.5, law=law)
    value, error = sampled_error(task, lambda X: X[:, task.relevant] @ task.direction, 1000, np.random.default_rng(0))
    assert value == 0 and 0 < error < 0.01


def test_relevant_attention_against_position_only():
    task = a_task(0.5)
    _, W = OrderParameters(0, 0, 0, 2.0, 1.5, -0.5).to_params(task.problem)
    value, error = relevant_attention(task, W, 50, np.random.default_rng(0))
    _, S = forward(np.zeros(7), W, np.zeros((1, 4, 3)), task.problem.positions)
    assert value == pytest.approx(S[0, 2].mean(), rel=1e-12) and error < 1e-14


@pytest.mark.parametrize("call, text", [
    (lambda: linear_error(a_task(0.5, law="uniform"), np.ones((4, 3))), "task: got the uniform law, expected gaussian"),
    (lambda: linear_error(a_task(0.5), np.zeros((4, 3))), "w: got zero"),
    (lambda: linear_error(a_task(0.5), np.ones((3, 4))), "w: got shape"),
    (lambda: linear_error(a_task(38.0), np.ones((4, 3))), "task: got the margin 38"),
    (lambda: attention_error(a_task(0.5, law="rademacher"), np.zeros(7), np.zeros((7, 7)), 10, np.random.default_rng(0)),
     "task: got the rademacher law"),
    (lambda: attention_error(a_task(0.5), np.zeros(6), np.zeros((7, 7)), 10, np.random.default_rng(0)), "v: got shape"),
])
def test_bad_arguments_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()
