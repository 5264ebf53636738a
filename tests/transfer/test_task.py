"""The downstream law: margins by construction, the conditional law exactly, errors of construction."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import chi2, kstest, norm, ks_2samp

from gsref import Problem
from gsref.transfer import task as module
from gsref.transfer.task import LAWS, DownstreamTask

FALSE_ALARM = 1e-4                             # of each sampled check; seeds are fixed, so it is met once and for all


def unit(d, seed=0):
    v = np.random.default_rng(seed).standard_normal(d)
    return v / np.linalg.norm(v)


def widest(direction, law):
    return {"gaussian": 6.0, "rademacher": np.abs(direction).sum(), "uniform": np.sqrt(3) * np.abs(direction).sum()}[law]


@given(law=st.sampled_from(LAWS), d=st.integers(1, 6), D=st.integers(1, 4), share=st.floats(0, 0.99), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_margins_hold_by_construction(law, d, D, share, seed):
    r = seed % D
    direction = unit(d, seed)
    gamma = share * widest(direction, law)
    X, y = DownstreamTask(Problem(d, D, relevant=r), direction, law, gamma).sample(50, np.random.default_rng(seed))
    s = X[:, r] @ direction
    assert X.shape == (50, D, d) and y.shape == (50,)
    assert (np.abs(y) == 1).all() and (np.where(s >= 0, 1.0, -1.0) == y).all()
    # x is s v + rest: its product with v is s up to the rounding of sums of d terms of size |x|
    assert (y * s >= gamma - 16 * np.finfo(float).eps * d * (1 + np.abs(X[:, r]).max()) - 1e-12 * gamma).all()
    if law == "rademacher":
        assert (np.abs(X) == 1).all()
    if law == "uniform":
        assert (np.abs(X) <= np.sqrt(3)).all()


@pytest.mark.derives("transfer.1")
@pytest.mark.parametrize("law", LAWS)
def test_coordinates_have_mean_zero_and_variance_one_and_labels_are_balanced(law):
    X, y = DownstreamTask(Problem(3, 4, relevant=1), unit(3), law, 0.5).sample(40000, np.random.default_rng(1))
    others = np.delete(X, 1, axis=1).reshape(-1)
    assert abs(others.mean()) <= 4 / np.sqrt(others.size)
    assert abs((others**2).mean() - 1) <= 4 * (others**2).std() / np.sqrt(others.size) + 1e-12
    assert abs(y.mean()) <= 4 / np.sqrt(len(y))
    # the other groups know nothing of the label
    assert (np.abs((y[:, None, None] * np.delete(X, 1, axis=1)).mean(axis=0)) <= 4.5 / np.sqrt(len(y))).all()


@pytest.mark.derives("transfer.2")
@pytest.mark.parametrize("gamma", [0.3, 2.0, 12.0])
def test_gaussian_margin_is_the_conditional_tail(gamma):
    direction = unit(3)
    X, y = DownstreamTask(Problem(3, 1), direction, "gaussian", gamma).sample(20000, np.random.default_rng(2))
    s, across = y * (X[:, 0] @ direction), X[:, 0] - np.outer(X[:, 0] @ direction, direction)
    assert kstest(norm.sf(s) / norm.sf(gamma), "uniform").pvalue > FALSE_ALARM
    basis = np.linalg.svd(direction[None])[2][1:]
    assert kstest((across @ basis.T).reshape(-1), "norm").pvalue > FALSE_ALARM


def rademacher_pvalue(task, n, seed):
    """Chi-square of the signs y x_r against the exact conditional law: all vectors with enough margin, equally likely."""
    vectors = np.array(list(product([-1.0, 1.0], repeat=task.d)))
    allowed = vectors[vectors @ task.direction >= task.margin]
    X, y = task.sample(n, np.random.default_rng(seed))
    seen = y[:, None] * X[:, task.relevant]
    counts = np.array([np.count_nonzero((seen == one).all(axis=1)) for one in allowed])
    assert counts.sum() == n                   # nothing outside
    expected = n / len(allowed)
    return chi2.sf(np.sum((counts - expected) ** 2 / expected), len(allowed) - 1)


@pytest.mark.derives("transfer.3")
@pytest.mark.parametrize("gamma", [0.4, 1.2, 1.8])
def test_rademacher_margin_has_the_enumerated_law(gamma):
    assert rademacher_pvalue(DownstreamTask(Problem(6, 2, relevant=1), unit(6), "rademacher", gamma), 20000, 3) > FALSE_ALARM


def test_uniform_margin_has_the_law_of_plain_rejection():
    direction, gamma, rng = unit(3), 1.3, np.random.default_rng(4)
    X, y = DownstreamTask(Problem(3, 1), direction, "uniform", gamma).sample(20000, rng)
    plain = np.sqrt(3) * (2 * rng.random((400000, 3)) - 1)
    plain = plain[plain @ direction >= gamma]
    for k in range(3):
        assert ks_2samp(y * X[:, 0, k], plain[:, k]).pvalue > FALSE_ALARM
    assert ks_2samp(y * (X[:, 0] @ direction), plain @ direction).pvalue > FALSE_ALARM


def test_uniform_margin_has_the_integrated_moments():
    # second moments given s >= gamma, by integration: x_3 in closed form, x_1 and x_2 on a midpoint grid
    v, gamma, edge = unit(3, 5), 0.5, np.sqrt(3)
    v = v * np.sign(v[2])
    x = (np.arange(400) + 0.5) / 400 * 2 * edge - edge
    x1, x2 = np.meshgrid(x, x, indexing="ij")
    low = np.clip((gamma - x1 * v[0] - x2 * v[1]) / v[2], -edge, edge)
    p = [(edge ** (k + 1) - low ** (k + 1)) / (k + 1) for k in range(3)]
    exact = np.array([np.sum(one) for one in (x1**2 * p[0], x1 * x2 * p[0], x2**2 * p[0], x1 * p[1], x2 * p[1], p[2])]) / p[0].sum()
    X, _ = DownstreamTask(Problem(3, 1), v, "uniform", gamma).sample(200000, np.random.default_rng(6))
    seen = np.array([X[:, 0, i] * X[:, 0, k] for i, k in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))])
    off = seen.mean(axis=1) - exact
    # chi-square in six dimensions; the grid is right to 1e-5, a hundredth of a standard error
    assert chi2.sf(off @ np.linalg.solve(np.cov(seen) / seen.shape[1], off), 6) > FALSE_ALARM


def test_planted_error_a_tilt_that_is_not_corrected_is_caught(monkeypatch):
    task = DownstreamTask(Problem(6, 2), unit(6), "rademacher", 0.4)
    real = module._tilted_coordinates
    # candidates of a stronger tilt than the one that is corrected for
    monkeypatch.setattr(module, "_tilted_coordinates", lambda law, theta, n, rng: real(law, 1.5 * theta, n, rng))
    assert rademacher_pvalue(task, 20000, 3) < FALSE_ALARM


@pytest.mark.parametrize("law, d, share", [("uniform", 12, 0.999), ("rademacher", 12, 1.0), ("uniform", 40, 0.3),
                                           ("rademacher", 40, 0.5)])
def test_extreme_margins_are_sampled_without_hoping(law, d, share):
    # the share kept is a probability over its Chernoff bound: never exponentially small, even where plain rejection
    # would need more than 2^12 (or 1e36) candidates a sample
    task = DownstreamTask(Problem(d, 1), np.full(d, 1 / np.sqrt(d)), law, share * widest(np.full(d, 1 / np.sqrt(d)), law))
    drawn = []
    real = module._tilted_coordinates

    def counting(law, theta, n, rng):
        drawn.append(n)
        return real(law, theta, n, rng)
    module._tilted_coordinates = counting
    try:
        task.sample(500, np.random.default_rng(0))
    finally:
        module._tilted_coordinates = real
    assert sum(drawn) <= 500 * 40


def test_same_seed_same_numbers_and_inputs_unchanged():
    direction = unit(4)
    kept = direction.copy()
    task = DownstreamTask(Problem(4, 3), direction, "uniform", 0.7)
    a, b = (task.sample(30, np.random.default_rng(9)) for _ in range(2))
    assert (a[0] == b[0]).all() and (a[1] == b[1]).all() and (direction == kept).all()
    assert task.held_out is task


@pytest.mark.parametrize("changes, error, text", [
    ({"direction": [1.0, 0.0]}, ValueError, r"direction: got shape \(2,\).*expected shape|direction: got shape \(2,\), expected \(3,\)"),
    ({"direction": [1.0, 0.1, 0.0]}, ValueError, "direction: got norm 1.00498"),
    ({"direction": [1.0, np.nan, 0.0]}, ValueError, "direction: got nan at index"),
    ({"direction": None}, TypeError, "direction"),
    ({"law": "cauchy"}, ValueError, "law: got 'cauchy', expected one of gaussian, rademacher, uniform"),
    ({"margin": -0.1}, ValueError, "margin: got -0.1"),
    ({"margin": np.inf}, ValueError, "margin: got inf"),
    ({"law": "rademacher", "margin": 1.41}, ValueError, r"margin: got 1.41, expected <= 1.4, the largest .* rademacher law"),
    ({"law": "uniform", "margin": 1.4 * np.sqrt(3)}, ValueError, r"margin: got 2.42487113, expected < 2.42487113"),
    ({"problem": 3}, TypeError, "problem: got int, expected Problem"),
])
def test_bad_tasks_are_refused(changes, error, text):
    arguments = {"problem": Problem(3, 2), "direction": [0.6, 0.8, 0.0], "law": "gaussian", "margin": 0.5} | changes
    with pytest.raises(error, match=text):
        DownstreamTask(**arguments)


def test_the_largest_rademacher_margin_is_possible():
    task = DownstreamTask(Problem(3, 2), [0.6, 0.8, 0.0], "rademacher", 1.4)
    X, y = task.sample(100, np.random.default_rng(0))
    assert (y[:, None] * X[:, 0, :2] == 1).all()


@pytest.mark.parametrize("n, rng, error", [(0, np.random.default_rng(0), ValueError), (2.5, np.random.default_rng(0), TypeError),
                                           (3, 7, TypeError)])
def test_bad_samples_are_refused(n, rng, error):
    with pytest.raises(error, match="^(n|rng): got"):
        DownstreamTask(Problem(2, 2), [1.0, 0.0]).sample(n, rng)
