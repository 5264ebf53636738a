"""Examples needed: the root is a root, the laws are limits, and the noise of finitely many tasks has its exact size."""

import math

import numpy as np
import pytest
from scipy.special import ndtri

from gsref.metalearner.accuracy import Contexts
from gsref.metalearner.baselines import FULL_MLE, PROJECTED_MLE
from gsref.metalearner.population import Order, error_rate
from gsref.metalearner.problem import MetaProblem
from gsref.metalearner.sample_size import (examples_needed, examples_needed_sampled, needed_law, noise_of_one_step)
from gsref.metalearner.training import train


@pytest.mark.parametrize("order", [PROJECTED_MLE, FULL_MLE, Order(1.0, 0.3)])
@pytest.mark.parametrize("R, accuracy", [(2.0, 0.9), (5.0, 0.99), (1.0, 0.7)])
def test_accuracy_is_met(order, R, accuracy):
    problem = MetaProblem(50, 10, R)
    M = examples_needed(problem, order, accuracy)
    assert 1.0 - error_rate(problem, order, M)[0] == pytest.approx(accuracy, abs=1e-11)


@pytest.mark.derives("meta.15")
@pytest.mark.parametrize("R", [2.0, 4.0])
def test_law_is_the_limit_of_large_dimension(R):
    off = []
    for k in (10**2, 10**3, 10**4, 10**5):
        off.append(abs(examples_needed(MetaProblem(2 * k, k, R), PROJECTED_MLE) / needed_law(k, R) - 1.0))
    slopes = np.diff(np.log10(off))
    assert np.abs(slopes + 1.0).max() < 0.05                            # the correction to M does not grow: off ~ 1/k
    wrong = needed_law(10**5, R) * 1.01
    assert abs(examples_needed(MetaProblem(2 * 10**5, 10**5, R), PROJECTED_MLE) / wrong - 1.0) > 10.0 * off[-1]


@pytest.mark.derives("meta.15")
def test_law_needs_a_mean_that_is_long_enough():
    z = ndtri(0.9)
    assert needed_law(100, 0.99 * z) == math.inf and np.isfinite(needed_law(100, 1.01 * z))
    with pytest.raises(ValueError, match=r"accuracy: got 0.9, expected less than Phi\(R\) = 0.8413"):
        examples_needed(MetaProblem(10, 2, 1.0), PROJECTED_MLE)


def test_some_rules_never_get_there():
    # W that turns the context by more than half a right angle: limited even with the mean known
    assert examples_needed(MetaProblem(10, 2, 2.0), Order(-1.0)) == math.inf


@pytest.mark.parametrize("accuracy", [0.5, 1.0, float("nan")])
def test_bad_accuracy(accuracy):
    with pytest.raises(ValueError, match="accuracy: got"):
        examples_needed(MetaProblem(10, 2, 3.0), PROJECTED_MLE, accuracy)


def test_sampled_number_is_the_exact_one_for_symmetric_w():
    problem = MetaProblem(20, 6, 1.8)
    contexts = Contexts(problem, 20_000, np.random.default_rng(0))
    M, error = examples_needed_sampled(contexts, PROJECTED_MLE.to_matrix(problem))
    exact = examples_needed(problem, PROJECTED_MLE)
    assert abs(M - exact) < 4.5 * error and error < 0.05 * exact
    assert abs(M - 1.5 * exact) > 4.5 * error
    never, error = examples_needed_sampled(contexts, -np.eye(20))
    assert never == math.inf and math.isnan(error)


@pytest.mark.derives("meta.16")
def test_noise_of_one_step_against_training():
    """|E^T muhat|^2 over |(R^2/k) Pi muhat|^2, both averaged over training sets and contexts."""
    problem, N, B, M = MetaProblem(30, 4, 1.5), 5, 50, 3.0
    rng, noise, signal = np.random.default_rng(0), [], []
    for _ in range(400):
        W = train(problem.sample_tasks(B, N, rng), 2.0, 1).W                            # eta/2 = 1
        contexts = Contexts(problem, 20, rng)
        muhat = contexts.mu + contexts.g / math.sqrt(M)
        mean = problem.R ** 2 / problem.k * muhat @ problem.projector
        noise.append((np.linalg.norm(muhat @ W - mean, axis=1) ** 2).mean())
        signal.append((np.linalg.norm(mean, axis=1) ** 2).mean())
    delta = np.mean(noise) / np.mean(signal)
    error = delta * math.hypot(np.std(noise) / np.mean(noise), np.std(signal) / np.mean(signal)) / math.sqrt(400)
    wanted = noise_of_one_step(problem, N, B, M)
    assert abs(delta - wanted) < 4.0 * error and error < 0.05 * wanted


@pytest.mark.derives("meta.16")
def test_excess_of_examples_is_the_law_to_its_corrections():
    problem, N, B = MetaProblem(200, 16, 2.0), 40, 20_000
    exact = examples_needed(problem, PROJECTED_MLE)
    law = noise_of_one_step(problem, N, B, exact) / (1.0 - ndtri(0.9) ** 2 / problem.R ** 2)
    contexts = Contexts(problem, 4000, np.random.default_rng(1))
    W = train(problem.sample_tasks(B, N, np.random.default_rng(0)), 2.0, 1).W
    base, _ = examples_needed_sampled(contexts, PROJECTED_MLE.to_matrix(problem))
    excess = examples_needed_sampled(contexts, W)[0] / base - 1.0
    corrections = 1.0 / problem.k + problem.k / problem.d + law              # concentration of |a|^2, noise along mu, delta^2
    assert abs(excess / law - 1.0) < corrections < 0.3
