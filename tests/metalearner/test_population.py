"""Population loss, velocity and error rate: two independent rules, closed forms, samples, and errors that are honest."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from gsref.metalearner import population as module
from gsref.metalearner import radial
from gsref.metalearner.population import Order, error_rate, population
from gsref.metalearner.problem import MetaProblem
from gsref.model import logistic_factor, logistic_loss
from gsref.quadrature import chi_square_rule

EPS = np.finfo(float).eps
# smooth enough for the product rule: context means away from the origin, p A of moderate size
SMOOTH = [(MetaProblem(10, 3, 2.0), Order(0.3, 0.2), 20), (MetaProblem(500, 30, 2.0), Order(0.2, 0.0), 40),
          (MetaProblem(6, 1, 2.5, 0.1), Order(0.5, -0.3), 10), (MetaProblem(5, 5, 3.0), Order(-0.2, 0.0), 7),
          (MetaProblem(2000, 1000, 7.0), Order(0.1, 0.05), 40), (MetaProblem(4, 2, 1.0), Order(0.0, 0.0), 3)]


def sampled(problem, order, N, B, seed):
    """Loss, c A/k, c T/(d - k) and the indicator of an error of B tasks, each (B,)."""
    tasks = problem.sample_tasks(B, N, np.random.default_rng(seed))
    xy = tasks.y[:, None] * tasks.x
    A = np.einsum("bk,bk->b", problem.coordinates(tasks.muhat), problem.coordinates(xy))
    T = np.einsum("bd,bd->b", tasks.muhat, xy) - A
    t = order.p * A + order.q * T
    c = logistic_factor(t)
    return logistic_loss(t), c * A / problem.k, c * T / max(problem.d - problem.k, 1), (t < 0).astype(float)


@pytest.mark.derives("meta.5", "meta.6", "meta.7", "meta.8")
@pytest.mark.parametrize("problem, order, N", SMOOTH)
def test_both_rules_agree_within_their_errors_and_to_1e_10(problem, order, N):
    one, two = population(problem, order, N), population(problem, order, N, rule="radial")
    for a, b, e in ((one.loss, two.loss, one.loss_error + two.loss_error),
                    (one.velocity.p, two.velocity.p, one.velocity_error.p + two.velocity_error.p),
                    (one.velocity.q, two.velocity.q, one.velocity_error.q + two.velocity_error.q)):
        assert abs(a - b) <= e
    assert max(one.loss_error, one.velocity_error.p * problem.k, one.velocity_error.q * problem.d) < 1e-10
    rate, rate_error = error_rate(problem, order, N)
    other, other_error = error_rate(problem, order, N, rule="radial")
    assert abs(rate - other) <= rate_error + other_error and rate_error < 1e-10


@pytest.mark.parametrize("d, k, R, noise, N, p, q", [
    (10, 3, 2.0, 0.0, 5, 0.3, 0.2), (40, 8, 2.0, 0.0, 40, 0.2, 0.0), (6, 1, 1.0, 0.2, 4, 1.0, -0.5),
    (5, 5, 3.0, 0.1, 7, -0.4, 0.9), (7, 2, 3.0, 0.0, 1, 3.0, 0.0), (2, 1, 0.5, 0.0, 3, 200.0, 30.0)])
def test_large_averages_within_four_standard_errors(d, k, R, noise, N, p, q):
    problem, order, B = MetaProblem(d, k, R, noise), Order(p, q), 100_000
    value = population(problem, order, N)
    wanted = (value.loss, value.velocity.p, value.velocity.q, error_rate(problem, order, N)[0])
    for sample, mean in zip(sampled(problem, order, N, B, 3), wanted):
        assert abs(sample.mean() - mean) <= 4.0 * sample.std() / math.sqrt(B) + 1e-15


def test_a_wrong_velocity_would_be_seen():
    problem, order, N, B = MetaProblem(10, 3, 2.0), Order(0.3, 0.2), 5, 100_000
    sample = sampled(problem, order, N, B, 3)[1]
    for other in (population(problem, order, N + 1), population(MetaProblem(10, 4, 2.0), order, N)):
        assert abs(sample.mean() - other.velocity.p) > 4.0 * sample.std() / math.sqrt(B)


@pytest.mark.derives("meta.5")
def test_velocity_is_the_mean_gradient_of_the_matrix_model():
    from gsref.metalearner.model import loss_and_gradient
    problem, order, N = MetaProblem(6, 2, 1.5, basis=np.linalg.qr(np.random.default_rng(0).standard_normal((6, 2)))[0]), \
        Order(0.4, 0.1), 3
    W, value = order.to_matrix(problem), population(problem, order, N)
    rng, parts = np.random.default_rng(1), []
    for _ in range(50):
        tasks = problem.sample_tasks(2000, N, rng)
        _, dW = loss_and_gradient(W, tasks.muhat, tasks.x, tasks.y)
        parts.append(-dW)
    mean, error = np.mean(parts, axis=0), np.std(parts, axis=0, ddof=1) / math.sqrt(50)
    wanted = value.velocity.to_matrix(problem)
    assert (np.abs(mean - wanted) <= 5.0 * error).all()             # 36 entries, false alarm 2e-4 by Student's t
    assert (np.abs(mean - 1.2 * wanted) > 5.0 * error).any()


def test_zero_and_one_dimension_in_closed_form():
    value = population(MetaProblem(4, 2, 1.0), Order(0.0), 3)
    assert abs(value.loss - math.log(2.0)) <= value.loss_error
    assert abs(value.velocity.p - 0.25) <= value.velocity_error.p                   # E[A]/2/k = R^2/2/k
    assert error_rate(MetaProblem(4, 2, 1.0), Order(0.0), 3) == (0.5, 0.0)
    # k = d = 1: A = a h with a ~ N(R, 1/N), h ~ N(R, 1): wrong if exactly one of them is negative
    R, N = 0.7, 3
    a, h = ndtr(-R * math.sqrt(N)), ndtr(-R)
    rate, error = error_rate(MetaProblem(1, 1, R), Order(2.0), N)
    assert abs(rate - (a + h - 2.0 * a * h)) <= error < 1e-13


def test_small_error_rates_keep_their_digits():
    # k = d = 1 again, far out in the tail: 1 - accuracy would be 0
    for R in (10.0, 20.0, 28.0):
        rate, error = error_rate(MetaProblem(1, 1, R), Order(1.0), 1)
        wanted = 2.0 * norm.sf(R) * norm.cdf(R)
        assert abs(rate - wanted) <= error < 1e-9 * wanted


@given(st.integers(1, 2000), st.integers(0, 2000), st.floats(0.05, 20.0), st.sampled_from([0.0, 0.2]), st.integers(1, 200),
       st.floats(-3.0, 3.0), st.floats(-3.0, 3.0))
@settings(max_examples=60)
def test_any_size_to_1e_10(k, off, R, noise, N, p, q):
    problem = MetaProblem(k + off, k, R, noise)
    value = population(problem, Order(p, q), N)
    A = abs(R) ** 2 + R + math.sqrt(k / N) + R / math.sqrt(N)                       # the size of A
    T = math.sqrt(off / N)
    assert value.loss_error <= 1e-10 * (1.0 + (abs(p) * A + abs(q) * T))
    assert value.velocity_error.p * k <= 1e-10 * A and value.velocity_error.q * off <= 1e-10 * (T + 1e-300)
    rate, error = error_rate(problem, Order(p, q), N)
    assert -error <= rate <= 1.0 + error and error <= 1e-10
    assert 0.0 < value.loss


def test_errors_of_the_contour_are_honest():
    """A coarser rule's estimate must cover its distance from the finest one, at 100 random points."""
    rng, misses = np.random.default_rng(0), 0
    for _ in range(100):
        k, off, N = (int(rng.integers(low, high)) for low, high in ((1, 50), (0, 50), (1, 50)))
        problem, p, q = MetaProblem(k + off, k, math.exp(rng.uniform(-1.5, 2.0))), rng.normal(), rng.normal()

        def log_f(z):
            return module._log_logistic_kernel(z) + module._mixture(z, p, q, problem, float(N))[0]

        def factors(z):
            return np.ones((1, len(z)))
        most = min(1.0, module._most(p, q, N))
        for rtol in (1e-2, 1e-4, 1e-6):
            coarse, error, n = module._contour(log_f, most, factors, rtol=rtol)
            fine, fine_error, _ = module._contour(log_f, most, factors)
            misses += abs(coarse[0] - fine[0]) > error[0] + fine_error[0]
    assert misses == 0


def test_errors_of_the_radial_rule_are_honest():
    rng, within, thrice, total = np.random.default_rng(1), 0, 0, 60
    for _ in range(total):
        k, off, N = (int(rng.integers(low, high)) for low, high in ((1, 40), (1, 40), (1, 60)))
        problem, p = MetaProblem(k + off, k, math.exp(rng.uniform(-1.0, 1.5))), math.exp(rng.uniform(-3.0, 1.0))
        rate, error = error_rate(problem, Order(p), N)
        other, other_error = error_rate(problem, Order(p), N, rule="radial")
        within += abs(rate - other) <= error + other_error
        thrice += abs(rate - other) <= 3.0 * (error + other_error)
    assert within >= 0.95 * total and thrice == total


def test_normal_means_against_adaptive_quadrature():
    for mean, sd in ((0.3, 0.5), (-2.0, 3.0), (5.0, 0.0), (10.0, 20.0), (-30.0, 4.0)):
        got = radial._normal_means(np.array([mean]), np.array([sd]), 128)[:, 0]
        for value, f in zip(got, (logistic_loss, logistic_factor, lambda t: logistic_factor(t) * logistic_factor(-t))):
            if sd == 0.0:
                wanted = float(f(mean))
            else:
                kink = -mean / sd
                wanted = sum(quad(lambda x: float(f(mean + sd * x)) * norm.pdf(x), low, high, epsabs=1e-13, epsrel=1e-12,
                                  limit=500)[0] for low, high in ((-12, kink), (kink, 12)))
            assert value == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("freedom", [1, 2, 29, 300, 301, 1999, 10**6])
def test_chi_square_rule_is_exact_to_its_degree_and_not_beyond(freedom):
    n = 5
    x, w = chi_square_rule(n, freedom)
    # central moments in units of the standard deviation, by the recursion of the gamma law about its mean
    a, moments = freedom / 2.0, [1.0, 0.0]
    for j in range(2, 2 * n + 1):
        moments.append((j - 1) * (moments[j - 1] / math.sqrt(a) + moments[j - 2]))
    z = (x - freedom) / math.sqrt(2.0 * freedom)
    for j in range(2 * n):
        assert w @ z ** j == pytest.approx(moments[j], rel=1e-9, abs=1e-9 * (w @ np.abs(z) ** j))
    assert w @ z ** (2 * n) < moments[2 * n] * (1.0 - 1e-3)


def test_chi_square_rule_without_freedom_is_a_constant():
    assert [v.tolist() for v in chi_square_rule(7, 0)] == [[0.0], [1.0]]


def test_order_to_matrix_and_back():
    problem = MetaProblem(5, 2, 1.0, basis=np.linalg.qr(np.random.default_rng(0).standard_normal((5, 2)))[0])
    order, rest = Order.from_matrix(Order(0.3, -0.7).to_matrix(problem), problem)
    assert order.p == pytest.approx(0.3, abs=1e-14) and order.q == pytest.approx(-0.7, abs=1e-14) and rest < 1e-14
    W = np.random.default_rng(1).standard_normal((5, 5))
    order, rest = Order.from_matrix(W, problem)
    for other in (Order(order.p + 1e-3, order.q), Order(order.p, order.q - 1e-3)):
        assert np.linalg.norm(W - other.to_matrix(problem)) > rest
    full, _ = Order.from_matrix(np.eye(3), MetaProblem(3, 3, 1.0))
    assert full == Order(1.0, 0.0)


def test_error_rate_knows_only_what_matters():
    # only the ratio of p and q decides the error rate
    problem = MetaProblem(6, 2, 1.0, 0.2)
    rates = [error_rate(problem, Order(3.0 * scale, scale), 5)[0] for scale in (1e5, 1e-5)]
    assert rates[0] == pytest.approx(rates[1], abs=1e-13)
    # and at k = d the value of q does not matter
    rates = [error_rate(MetaProblem(3, 3, 1.0), Order(1.0, q), 4)[0] for q in (5.0, 0.0)]
    assert rates[0] == pytest.approx(rates[1], abs=1e-13)


@pytest.mark.parametrize("arguments, error, message", [
    ((None, Order(1.0), 3), TypeError, "problem: got NoneType"),
    ((MetaProblem(3, 2, 1.0), Order(float("nan")), 3), ValueError, "p: got nan"),
    ((MetaProblem(3, 2, 1.0), Order(1.0), 0), ValueError, "got 0.0, expected a finite number > 0"),
    ((MetaProblem(3, 2, 1.0, 0.1), Order(1.0), 2.5), ValueError, "got 2.5, expected a whole number"),
    ((MetaProblem(3, 2, 1.0), Order(1.0), 3, "guess"), ValueError, "rule: got 'guess'"),
])
@pytest.mark.parametrize("function", [population, error_rate])
def test_bad_input(function, arguments, error, message):
    with pytest.raises(error, match=message):
        function(*arguments)
