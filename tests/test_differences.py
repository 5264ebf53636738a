"""The checkers of derivatives, against functions whose derivative is known, and against planted errors."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gsref.differences import TaylorSlope, central, complex_step, richardson, taylor_slope
from gsref.model import logistic_factor, logistic_loss

X, Y = np.array([0.3, -1.2, 2.0]), np.array([[0.5, -0.25], [1.5, 0.75]])


def smooth(x, y):
    """An analytic function of two arrays that mixes all entries."""
    return np.exp(np.sum(x) / 4) * np.sin(np.sum(y * y)) + np.sum(x ** 3)


def smooth_gradient(x, y):
    e, s = np.exp(np.sum(x) / 4), np.sum(y * y)
    return [e / 4 * np.sin(s) + 3 * x ** 2, e * np.cos(s) * 2 * y]


def test_central_differences_have_order_two():
    exact = smooth_gradient(X, Y)
    errors = []
    for h in (1e-2, 1e-3):
        errors.append(max(np.abs(a - b).max() for a, b in zip(central(smooth, [X, Y], h), exact)))
    assert np.log10(errors[0] / errors[1]) == pytest.approx(2, abs=0.01)


def test_complex_step_is_exact_to_rounding():
    for got, exact in zip(complex_step(smooth, [X, Y]), smooth_gradient(X, Y)):
        assert got.shape == exact.shape
        np.testing.assert_allclose(got, exact, rtol=8 * np.finfo(float).eps)


def test_richardson_is_within_its_error_which_is_small():
    values, errors = richardson(smooth, [X, Y])
    for got, error, exact in zip(values, errors, smooth_gradient(X, Y)):
        assert (np.abs(got - exact) <= error).all()
        assert (error <= 1e-10 * np.abs(exact).max()).all()


def logistic(t):
    return float(logistic_loss(t[0]))


SCALAR = {   # f, its derivative: features far narrower and far wider than the first step, cancellation, growth
    "logistic": (logistic, lambda t: -float(logistic_factor(t))),
    "steep logistic": (lambda t: logistic(1000 * t), lambda t: -1000 * float(logistic_factor(1000 * t))),
    "wide": (lambda t: np.sin(t[0] / 1000), lambda t: np.cos(t / 1000) / 1000),
    "large offset": (lambda t: 1e6 + np.sin(t[0]), np.cos),
    "steep tanh": (lambda t: np.tanh(300 * t[0]), lambda t: 300 / np.cosh(min(abs(300 * t), 350)) ** 2),
    "bump": (lambda t: np.exp(-(200 * t[0]) ** 2), lambda t: -80000 * t * np.exp(-(200 * t) ** 2)),
    "oscillation": (lambda t: np.sin(150 * t[0]), lambda t: 150 * np.cos(150 * t)),
    "exponential": (lambda t: np.exp(5 * t[0]), lambda t: 5 * np.exp(5 * t)),
}


@pytest.mark.parametrize("name", SCALAR)
@given(t=st.floats(-3, 3) | st.floats(-0.02, 0.02))
def test_richardson_error_estimate_is_honest(name, t):
    f, derivative = SCALAR[name]
    [value], [error] = richardson(f, [np.array([t])])
    exact = derivative(t)
    # the exact value is itself rounded: exp, sin and tanh of an argument s with relative error eps are off by |s| eps
    assert abs(value[0] - exact) <= error[0] + 4 * np.finfo(float).eps * (1 + 1000 * abs(t)) * abs(exact)


def test_richardson_distrusts_steps_that_agree_by_accident():
    # t = 5 on a logistic loss of slope 1e4: for coarse steps the differences are nearly constant, half the right value
    def f(t):
        return logistic(1e4 * t)
    exact, point = -1e4 * float(logistic_factor(5.0)), [np.array([5e-4])]
    assert central(f, point, 0.5)[0][0] == pytest.approx(central(f, point, 0.25)[0][0], rel=2e-3)
    assert abs(central(f, point, 0.25)[0][0]) > 50 * abs(exact)
    [value], [error] = richardson(f, point, step=4.0, levels=10)         # ends before the feature
    assert error[0] == np.inf
    [value], [error] = richardson(f, point, step=4.0, levels=26)
    assert abs(value[0] - exact) <= error[0] <= 1e-5 * abs(exact)


def test_richardson_error_grows_with_the_noise_of_f():
    noise = 1e-6
    def noisy(t):
        return np.sin(t[0]) + noise * np.sin(1e9 * t[0])
    [value], [error] = richardson(noisy, [np.array([0.7])], f_error=noise)
    assert abs(value[0] - np.cos(0.7)) <= error[0]
    [value], [error] = richardson(noisy, [np.array([0.7])])           # a planted lie: f_error left at rounding
    assert error[0] > 1e-6                                             # the scatter of the table still shows


# row 20: complex step needs an analytic f

@pytest.mark.derives("model.6")
@pytest.mark.parametrize("t, factor", [(-2.0, 0.8807970779778823), (0.0, 0.5), (2.0, 0.11920292202211755)])
def test_complex_step_of_the_logistic_loss_at_known_values(t, factor):
    [slope] = complex_step(lambda t: logistic_loss(t)[0], [np.array([t])])
    assert slope[0] == pytest.approx(-factor, rel=4e-16)
    assert float(logistic_factor(t)) == pytest.approx(factor, rel=4e-16)


@pytest.mark.parametrize("f", [
    lambda t: np.abs(t[0]), lambda t: np.log1p(np.exp(-t[0].real)), lambda t: abs(t[0]) + np.log(2.0)])
def test_complex_step_refuses_a_function_that_drops_the_imaginary_part(f):
    with pytest.raises(TypeError, match="^f: got .* expected a complex number"):
        complex_step(f, [np.array([2.0])])


@pytest.mark.parametrize("planted", [
    lambda t: np.maximum(0, -t[0]) + np.log1p(np.exp(-np.abs(t[0]))),       # the usual stable form: abs
    lambda t: np.log1p(np.exp(-np.conj(t[0])))])
def test_comparison_with_richardson_finds_a_function_that_is_not_analytic(planted):
    point = [np.array([2.0])]
    [step], [[value]], [[error]] = complex_step(planted, point), *richardson(planted, point)
    assert abs(step[0] - value) > 1e3 * error


# Taylor slope

def slope_of(gradient, f=smooth, point=(X, Y), **options):
    rng = np.random.default_rng(5)
    return taylor_slope(f, point, gradient, [rng.choice([-1.0, 1.0], x.shape) for x in point], **options)


def test_taylor_slope_of_the_gradient_is_two():
    taylor = slope_of(smooth_gradient(X, Y))
    assert abs(taylor.slope - 2) <= taylor.error <= 0.2
    assert 3 <= taylor.used.sum() <= 6 and taylor.steps.shape == taylor.remainders.shape == taylor.noise.shape


@pytest.mark.parametrize("relative", [1.0, 1e-2, 1e-4])
def test_taylor_slope_of_a_planted_error_is_one(relative):
    wrong = smooth_gradient(X, Y)
    wrong[1][0, 1] *= 1 + relative
    taylor = slope_of(wrong)
    assert abs(taylor.slope - 1) <= taylor.error <= 0.2


def test_taylor_sweep_shows_the_bend_from_two_to_one():
    wrong = smooth_gradient(X, Y)
    wrong[0][0] *= 1 + 1e-3
    taylor = slope_of(wrong, step=0.25)
    local = np.diff(np.log(np.abs(taylor.remainders))) / np.diff(np.log(taylor.steps))
    middle = (taylor.steps[1:] > 4e-4) & (taylor.steps[1:] < 4e-3)
    assert (np.abs(local[middle] - 2) < 0.1).all() and abs(taylor.slope - 1) <= taylor.error <= 0.2


def test_taylor_slope_is_nan_where_no_remainder_is_visible():
    taylor = taylor_slope(lambda x: 3 * x[0], [np.array([1.0])], [np.array([3.0])], [np.array([1.0])])
    assert np.isnan(taylor.slope) and np.isnan(taylor.error) and not taylor.used.any()


def test_taylor_slope_where_everything_underflows_is_nan():
    taylor = taylor_slope(lambda x: 0.0 * x[0], [np.array([1.0])], [np.array([0.0])], [np.array([1.0])], f_error=0.0)
    assert np.isnan(taylor.slope) and not taylor.used.any()


def test_taylor_slope_of_no_power_law_claims_nothing():
    # between the two powers for all steps that rise above the rounding error given
    taylor = taylor_slope(lambda x: 3 * x[0] + 1e-3 * x[0] ** 2, [np.array([0.0])], [np.array([3.0 - 1e-5])],
                          [np.array([1.0])], step=0.125, f_error=1e-9)
    assert 1 < taylor.slope < 2 and taylor.error == np.inf


def test_taylor_slope_does_not_mistake_noise_for_a_remainder():
    def noisy(x):
        return 3 * x[0] + 1e-8 * np.sin(1e12 * x[0])
    options = ([np.array([1.0])], [np.array([3.0])], [np.array([1.0])])
    assert np.isnan(taylor_slope(noisy, *options, f_error=1e-8).slope)
    assert abs(taylor_slope(noisy, *options).slope) < 0.5              # f_error too small, planted: a plateau, slope 0


# arguments

def test_point_is_not_modified_and_integers_are_taken():
    point = [np.array([1, 2, 3]), np.array(4.0)]
    keep = [x.copy() for x in point]
    for gradient in (central(lambda x, a: np.sum(x) * a, point), complex_step(lambda x, a: np.sum(x) * a, point),
                     richardson(lambda x, a: np.sum(x) * a, point)[0]):
        np.testing.assert_allclose(gradient[0], [4, 4, 4], rtol=1e-9)
        assert gradient[1].shape == () and abs(gradient[1] - 6) < 1e-8
    assert all((x == k).all() and x.dtype == k.dtype for x, k in zip(point, keep))


@pytest.mark.parametrize("rule", [central, richardson, complex_step])
@pytest.mark.parametrize("value, message", [(np.nan, "f: got .*nan"), (np.inf, "f: got .*inf"),
                                            (np.ones(2), r"f: got an array of shape \(2,\)")])
def test_values_that_are_no_finite_number_are_named(rule, value, message):
    with pytest.raises(ValueError, match=message):
        rule(lambda x: value, [np.ones(1)])
    with pytest.raises(ValueError, match=message):
        taylor_slope(lambda x: value, [np.ones(1)], [np.ones(1)], [np.ones(1)])


def test_shapes_that_do_not_match_and_too_few_levels_are_named():
    with pytest.raises(ValueError, match="gradient: got shapes"):
        taylor_slope(smooth, [X, Y], [X, X], [X, Y])
    with pytest.raises(ValueError, match="direction: got shapes"):
        taylor_slope(smooth, [X, Y], [X, Y], [Y, Y])
    with pytest.raises(ValueError, match="levels: got 2"):
        richardson(smooth, [X, Y], levels=2)


def test_result_is_the_named_kind():
    assert isinstance(slope_of(smooth_gradient(X, Y)), TaylorSlope)
