"""The law of attention over inputs: against samples of the data law, and exact where it is not random."""

import numpy as np
import pytest

from gsref import OrderParameters, Problem, forward, population
from gsref.attention import attention_law, mean_attention

PROBLEM = Problem(3, 5, sigma=0.8, relevant=2)
ORDER = OrderParameters(1.0, -0.3, 0.05, 1.2, 0.9, -0.2)


def test_full_mode_against_fresh_samples():
    """Means within 5 standard errors; the share of inputs above the 99 % quantile within 5 of its own."""
    n, rng = 2**15, np.random.default_rng(3)
    X, _ = PROBLEM.sample(n, rng)
    _, S = forward(*ORDER.to_params(PROBLEM), X, PROBLEM.positions)
    leak = 1 - S[:, PROBLEM.relevant]
    law = attention_law(PROBLEM, ORDER, n=2**14)
    assert abs(law.leak - leak.mean()) < 5 * leak.mean(axis=1).std() / np.sqrt(n)
    above = np.mean(leak.max(axis=1) > law.worst_leak)
    assert abs(above - 0.01) < 5 * np.sqrt(0.01 / n + 0.01 / 2**14)
    mean = mean_attention(PROBLEM, ORDER, n=2**14)
    assert np.all(np.abs(mean - S.mean(axis=0)) < 5 * S.std(axis=0) / np.sqrt(n))
    np.testing.assert_allclose(mean.sum(axis=0), 1, rtol=1e-13)
    assert law.leak == pytest.approx(population(PROBLEM, ORDER, rtol=1e-3).leak, abs=1e-3)
    # planted: another sigma is seen
    other = attention_law(Problem(3, 5, sigma=1.0, relevant=2), ORDER, n=2**14)
    assert abs(np.mean(leak.max(axis=1) > other.worst_leak) - 0.01) > 5 * np.sqrt(0.01 / n + 0.01 / 2**14)


def test_position_only_is_exact_and_keeps_small_leaks():
    order = OrderParameters(1.0, 0, 0, 600.0, 500.0, -100.0)
    law = attention_law(PROBLEM, order, mode="position_only")
    leaks = [4 * np.exp(-600 * 5 / 4)] + 4 * [np.exp(-600) + 3 * np.exp(-500 - 400 / 3)]
    assert law.worst_leak == pytest.approx(max(leaks), rel=1e-12) and law.worst_leak > 0
    assert law.leak == pytest.approx(np.mean(leaks), rel=1e-12)
    assert population(PROBLEM, order, mode="position_only").leak == pytest.approx(law.leak, rel=1e-12)


def test_start_is_uniform():
    np.testing.assert_allclose(mean_attention(PROBLEM, OrderParameters()), 1 / 5, rtol=1e-12)
    law = attention_law(PROBLEM, OrderParameters())
    np.testing.assert_allclose([law.leak, law.worst_leak], 0.8, rtol=1e-12)


@pytest.mark.parametrize("change, error, message", [
    ({"n": 100}, ValueError, "n: got 100, expected an integer >= 128"),
    ({"n": 1000}, ValueError, "n: got 1000, expected a power of two"),
    ({"mode": "none"}, ValueError, "mode: got 'none'"),
    ({"order": None}, TypeError, "order: got NoneType"),
    ({"problem": None}, TypeError, "problem: got NoneType"),
])
@pytest.mark.parametrize("function", [attention_law, mean_attention])
def test_bad_input(function, change, error, message):
    with pytest.raises(error, match=message):
        function(**{"problem": PROBLEM, "order": ORDER, **change})
