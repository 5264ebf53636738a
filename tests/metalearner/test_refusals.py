"""Is a bad order or problem named, and is the standard error of thinned odds the scatter that it claims to be?"""

import numpy as np
import pytest

from gsref.metalearner.bayes import log_odds, optimal_accuracy
from gsref.metalearner.limit import second_moment
from gsref.metalearner.population import error_rate, population
from gsref.metalearner.problem import MetaProblem

PROBLEM = MetaProblem(3, 2, 1.5, 0.2)


@pytest.mark.parametrize("order", [None, 0.5, (0.5, 0.1), np.eye(3)])
def test_what_is_no_order_is_named(order):
    for call in (lambda: population(PROBLEM, order, 3), lambda: error_rate(PROBLEM, order, 3),
                 lambda: optimal_accuracy(PROBLEM, 3, 2, np.random.default_rng(0), order)):
        with pytest.raises(TypeError, match="^order: "):
            call()


@pytest.mark.parametrize("name, value", [("N", 0), ("N", np.nan), ("N", np.inf), ("N", None), ("problem", None)])
def test_second_moment_names_a_bad_argument(name, value):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
        second_moment(**{"problem": PROBLEM, "N": 3, name: value})


def test_the_error_of_thinned_odds_is_their_scatter():
    rng, z = np.random.default_rng(3), []
    for mu in PROBLEM.sample_means(40, rng):
        X, labels = (array[0] for array in PROBLEM.sample_context(mu[None], 9, rng))
        x = mu + rng.standard_normal(3)
        odds = log_odds(PROBLEM, X, labels, x, "sequence", rng, n=16)
        z.append((odds.value - log_odds(PROBLEM, X, labels, x, "flips").value) / odds.error)
    assert 0.7 < np.sqrt(np.mean(np.square(z))) < 1.8                      # 1.2 for Student's law of 7 degrees
