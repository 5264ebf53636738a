"""Loss and velocity in expectation: every rule against the others, against sampling, and against another integral."""

import honest
import numpy as np
import pytest
from scipy.integrate import dblquad
from scipy.special import expit

from gsref import OrderParameters, Problem, loss_and_gradient, population
from gsref.order import position_scores
from gsref.population import velocity_scales

# (d, D, sigma, relevant), order: generic points of every size, weak and strong attention, both signs of a and b
POINTS = [
    ((1, 2, 1.0, 1), (0.5, -0.1, 0, 0.3, 0.2, -0.2)),
    ((1, 2, 2.0, 0), (2.0, 0.2, 0, -0.3, 0.6, -0.6)),
    ((3, 2, 0.7, 0), (0.5, -0.1, 0.05, 0.3, 0.2, -0.2)),
    ((6, 2, 1.0, 1), (1.5, -0.2, 0.02, 1.3, 1.2, -1.2)),
    ((1, 3, 1.0, 2), (0.8, -0.25, 0, 0.6, 0.9, 0.1)),
    ((2, 3, 1.3, 0), (0.6, -0.1, 0.05, 0.3, 0.5, 0.1)),
    ((2, 3, 0.5, 1), (1.0, 0.3, -0.1, 1.0, 0.5, -0.1)),
    ((4, 5, 1.0, 0), (0.1, 0.05, 0.01, 0.2, 0.1, 0.05)),
    ((4, 8, 1.0, 3), (1.3, -0.24, 0.01, 3.1, 2.9, -0.35)),
    ((20, 4, 0.5, 1), (1.0, -0.2, 0.01, 2.0, 1.5, -0.2)),
    ((2, 16, 1.0, 5), (0.3, -0.05, 0.01, 0.5, 0.5, -0.03)),
    ((1, 6, 1.0, 0), (-0.7, -0.1, 0, 0.5, 0.4, 0.1)),
]


def unpack(result):
    return (np.array([result.loss, *result.velocity.to_array()]),
            np.array([result.loss_error, *result.velocity_error.to_array()]))


def sampled(problem, order, n, batches, seed):
    """Plain Monte Carlo through (v, W) and the closed-form gradient: means and standard errors of seven numbers."""
    rng, rows = np.random.default_rng(seed), []
    v, W = order.to_params(problem)
    for _ in range(batches):
        loss, dv, dW = loss_and_gradient(v, W, *problem.sample(n, rng), problem.positions)
        rows.append([loss, *OrderParameters.from_params(-dv, -dW, problem)[0].to_array()])
    rows = np.array(rows)
    return rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(batches)


@pytest.mark.derives("population.4", "population.5", "population.6")
@pytest.mark.parametrize("k", range(len(POINTS)))
def test_rules_agree_with_each_other_and_with_sampling(k):
    """Twelve points, seven numbers each, 5 standard errors of 64 batches: false alarms about 4e-4 in all."""
    (d, D, sigma, r), values = POINTS[k]
    problem, order = Problem(d, D, sigma, r), OrderParameters(*values)
    mean, se = sampled(problem, order, 1024, 64, [7, k])
    rqmc, rqmc_error = unpack(population(problem, order, rule="rqmc", rtol=1e-3, max_nodes=2**20))
    assert np.all(np.abs(rqmc - mean) <= 5 * se + rqmc_error + 1e-12), (rqmc - mean) / (se + 1e-300)
    # planted: a velocity that is off by a tenth of itself is noticed somewhere
    assert np.any(np.abs(1.1 * rqmc - mean) > 5 * se + rqmc_error)
    if D == 2 or (D == 3 and d <= 2):
        tensor, tensor_error = unpack(population(problem, order, rule="tensor", rtol=1e-6))
        assert np.all(np.abs(rqmc - tensor) <= rqmc_error + tensor_error + 1e-12)
        assert tensor_error[0] < rqmc_error[0]


def two_dimensional(problem, order):
    """Position-only loss and velocities by adaptive integration over (m_r, sum of the others), from S itself."""
    D, s, r, k = problem.D, problem.sigma, problem.relevant, problem.D - 1
    M = position_scores(problem, order)
    E = np.exp(M - M.max(axis=0))
    S = E / E.sum(axis=0)
    others = [j for j in range(D) if j != r]
    T, B = S[r].sum(), S[others[0]].sum()
    spread = np.sqrt(k)

    def mean(h):
        def integrand(z, x):
            weight = np.exp(-0.5 * (x * x + z * z)) / np.pi
            return weight * h(s * x, s * spread * z)
        edge = 1 / max(1.0, abs(order.alpha) * s * T)
        total = 0.0
        cuts = [0.0, *(c for c in (edge, 4 * edge, 16 * edge) if c < 3), 3.0, 9.0]
        for low, high in zip(cuts, cuts[1:]):
            for a, b in ((-9, 0), (0, 9)):
                total += dblquad(integrand, low, high, a, b, epsabs=1e-14, epsrel=1e-13)[0]
        return total

    def logit(m, total):
        return order.alpha * (T * m + B * total)
    loss = mean(lambda m, total: np.logaddexp(0, -logit(m, total)))
    c_r = mean(lambda m, total: expit(-logit(m, total)) * m)
    c_o = mean(lambda m, total: expit(-logit(m, total)) * total) / k
    gain = problem.kappa**2 * order.alpha * (c_r - c_o)
    j = others[0]
    return np.array([loss, T * c_r + k * B * c_o, 0, 0, gain * S[r, r] * (1 - S[r, r]), gain * S[r, j] * (1 - S[r, j]),
                     -gain * S[j, j] * S[r, j]])


@pytest.mark.derives("population.1", "population.2", "population.3")
@pytest.mark.parametrize("D, sigma, values", [
    (2, 1.0, (0.7, 0, 0, 0.4, 0.3, -0.3)),
    (4, 1.0, (0.0, 0, 0, 0, 0, 0)),
    (4, 0.5, (1.5, 0, 0, 1.4, 0.9, -0.3)),
    (8, 2.0, (-0.3, 0, 0, 0.5, 0.2, 0.6)),
    (8, 1.0, (3.0, 0, 0, 5.0, 4.0, -0.5)),
])
def test_position_only_against_a_two_dimensional_integral(D, sigma, values):
    problem, order = Problem(3, D, sigma, relevant=D // 2), OrderParameters(*values)
    found, error = unpack(population(problem, order, mode="position_only"))
    wanted = two_dimensional(problem, order)
    size = np.maximum(np.abs(wanted), np.max(np.abs(wanted[1:])) * (np.arange(7) > 0) * 1e-3)
    np.testing.assert_allclose((found - wanted) / np.where(size > 0, size, 1), 0, atol=1e-12)
    assert np.all(error <= 1e-12 * np.maximum(np.abs(found), 1))
    # planted: the same integral at an alpha that is off by 1e-10 is told apart
    if order.alpha:
        off = OrderParameters(order.alpha * (1 + 1e-10), *values[1:])
        assert abs(unpack(population(problem, off, mode="position_only"))[0][0] / wanted[0] - 1) > 1e-12


@pytest.mark.derives("population.7")
def test_velocity_scales_are_the_lengths_of_the_units():
    for d, D in ((1, 2), (3, 2), (3, 3), (5, 8)):
        problem, scales = Problem(d, D), velocity_scales(Problem(d, D))
        for k, name in enumerate(("alpha", "a", "b", "m_rr", "m_ro", "m_oo")):
            if (d == 1 and name == "b") or (D == 2 and name == "m_oo"):
                continue
            unit = {name: 1.0} | ({"m_oo": -1.0} if D == 2 and name == "m_ro" else {})
            v, W = OrderParameters(**unit).to_params(problem)
            np.testing.assert_allclose(scales[k] * np.hypot(np.linalg.norm(v), np.linalg.norm(W)), 1, rtol=1e-13)


def test_start_is_known_exactly():
    """At zero: f = 0, c = 1/2, alpha' = E[m_r]/2 = sigma/sqrt(2 pi), nothing else moves."""
    for mode in ("full", "position_only"):
        for D in (1, 2, 5):
            found, error = unpack(population(Problem(3, D, 1.7), OrderParameters(), mode=mode))
            np.testing.assert_allclose(found, [np.log(2), 1.7 / np.sqrt(2 * np.pi), 0, 0, 0, 0, 0], atol=1e-6)
            assert np.all(np.abs(found - [np.log(2), 1.7 / np.sqrt(2 * np.pi), 0, 0, 0, 0, 0]) <= error + 1e-15)


def judged(points):
    """Excess of each point: |value - reference| in units of the estimate plus the error of the reference."""
    known = honest.stored()
    return np.array([honest.excess(i, known) for i in points])


@pytest.mark.derives("quad.9")
def test_errors_are_honest():
    """30 of the 300 points of `honest`: at most 3 beyond the estimate (binomial, 5 % each: 6 % false alarms if
    the estimate were only just a 95 % bound, it is much better), none beyond three times it."""
    found = judged(range(5, honest.POINTS, 10))
    assert np.sum(found > 1) <= 3 and np.all(found <= 3), dict(zip(range(5, honest.POINTS, 10), found))


@pytest.mark.slow
@pytest.mark.derives("quad.9")
def test_errors_are_honest_at_300_points():
    """On paths of training, off them, and on the hard side: 95 % within the estimate, all within three times it."""
    found = judged(range(honest.POINTS))
    assert np.mean(found <= 1) >= 0.95 and np.all(found <= 3), {i: x for i, x in enumerate(found) if x > 1}


@pytest.mark.slow
@pytest.mark.derives("quad.9")
def test_errors_are_honest_at_fresh_points():
    """The same at 100 points from seeds that no factor and no choice of a rule was tuned on.

    A 95 % bound that is only just one is exceeded at more than 10 of them with probability 1.1 %.
    """
    found = judged(honest.FRESH)
    assert np.sum(found > 1) <= 10 and np.all(found <= 3), {i: x for i, x in zip(honest.FRESH, found) if x > 1}


def test_budget_is_kept_and_the_error_says_so():
    found = population(Problem(4, 8), OrderParameters(1, -0.2, 0.01, 2, 1.5, -0.2), rule="rqmc", rtol=1e-9,
                       max_nodes=2**17)
    assert not found.converged and found.n_nodes <= 2**17 and found.loss_error > 1e-9 * found.loss


def test_many_groups_out_of_range_cost_no_minutes_and_no_gigabytes():
    point = OrderParameters(3.0, 30.0, 5.0, 1.0, 0.0, 0.0)                 # far beyond what the sparse grid is good for
    found = population(Problem(4, 10**5), point)
    assert found.rule == "sparse_grid" and not found.converged and found.loss_error > found.loss
    with pytest.raises(ValueError, match="rule: got 'rqmc', expected one of auto, sparse_grid at mode=full, d=4, D=1025"):
        population(Problem(4, 1025), point, rule="rqmc")


def test_same_arguments_same_bits():
    point = Problem(3, 4), OrderParameters(0.5, -0.1, 0.02, 0.3, 0.2, -0.1)
    assert population(*point, rtol=1e-2) == population(*point, rtol=1e-2)


@pytest.mark.parametrize("change, error, message", [
    ({"problem": 1}, TypeError, "problem: got int, expected Problem"),
    ({"order": (0,) * 6}, TypeError, "order: got tuple, expected OrderParameters"),
    ({"order": OrderParameters(b=1), "problem": Problem(1, 3)}, ValueError, r"order\.b"),
    ({"mode": "partial"}, ValueError, "mode: got 'partial', expected one of full, position_only"),
    ({"rule": "simpson"}, ValueError, "rule: got 'simpson', expected one of auto"),
    ({"rule": "one_dimensional"}, ValueError, "rule: got 'one_dimensional', expected one of"),
    ({"rule": "tensor", "problem": Problem(4, 8)}, ValueError, "rule: got 'tensor', expected one of"),
    ({"mode": "position_only", "order": OrderParameters(a=0.1)}, ValueError, "expected 0 in position-only mode"),
    ({"rtol": 0.0}, ValueError, "rtol: got 0.0"),
    ({"rtol": float("nan")}, ValueError, "rtol: got nan"),
    ({"max_nodes": 10}, ValueError, "max_nodes: got 10"),
    ({"seed": -1}, ValueError, "seed: got -1"),
    ({"problem": Problem(2, 3, 1e-150)}, OverflowError, "problem.sigma: got 1e-150, expected from 1e-100 to 1e.100"),
    ({"order": OrderParameters(alpha=-1e200)}, OverflowError, r"order\.alpha: got .alpha. sigma = 1e.200, expected at"),
    ({"problem": Problem(2, 3, 1e60), "order": OrderParameters(b=1)}, OverflowError, r"order\.b: got .b. sigma\^2"),
    ({"order": OrderParameters(m_oo=1e101)}, OverflowError, r"order\.m_oo: got .m_oo. = 1e.101"),
])
def test_bad_input(change, error, message):
    arguments = {"problem": Problem(2, 3), "order": OrderParameters(), **change}
    with pytest.raises(error, match=message):
        population(**arguments)


@pytest.mark.parametrize("sigma", [1e-100, 1.0, 1e100])
@pytest.mark.parametrize("d, D", [(1, 1), (1, 2), (3, 2), (2, 3), (4, 8), (2, 65536)])
@pytest.mark.parametrize("signs", [(1, 0, 1), (-1, 1, -1), (1, -1, 0), (0, 1, 1)])
def test_numbers_at_the_ends_of_the_range_are_finite_and_silent(sigma, d, D, signs):
    alpha, a, m = 0.999e100 * np.array(signs)
    mode = "full" if D < 100 else "position_only"
    a = a / sigma**2 if mode == "full" else 0.0
    scores = {"m_rr": m, "m_ro": -m, "m_oo": m} if D > 1 else {}
    order = OrderParameters(alpha / sigma, a, -a if d > 1 else 0.0, **scores)
    found = population(Problem(d, D, sigma), order, mode, max_nodes=1024)
    assert np.isfinite([found.loss, found.loss_error, *found.velocity.to_array(), *found.velocity_error.to_array()]).all()
    assert 0 <= found.leak <= 1
