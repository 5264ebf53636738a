"""Verdicts on made-up measurements whose laws are known: as claimed, spoilt in one place, and too rough to tell."""

import numpy as np
import pytest

from gsref.metalearner import claims
from gsref.metalearner.sample_size import needed_law


def runs(gap=None, rate=1.0, kkt=1e-15):
    """Measurements for B1: gap = predicted (1 + 3/n^rate), all on the support; another that falls; early stopping."""
    steps = 10 ** np.arange(13)
    predicted = 0.3 / (1.0 + np.log(steps))
    every = {"steps": steps, "predicted": predicted, "gap": predicted * (1 + 3.0 / steps ** rate), "kkt": np.full(4, kkt)}
    if gap is not None:
        every["gap"] = gap(every["gap"])
    some = {"gap": predicted, "kkt": np.zeros(4)}
    published = {"steps": np.array(300), "accuracy": np.array([0.9, 0.9, 0.8]), "accuracy_error": np.full(3, 1e-4),
                 "cosine_first": np.array(0.99), "cosine_margin": np.array(0.9), "kkt": np.zeros(4)}
    return every, some, published


def grid(k_power=1.0, R_power=0.0):
    """Measurements for B2 and B4: the derived law, times powers that would break the claims."""
    sizes, R = np.array(40 * 8 ** np.arange(7)), 2.0 * 2.0 ** (np.arange(7) / 2)
    M = needed_law(sizes + 1, R[:, None], claims.ACCURACY) * (sizes / 40.0) ** (k_power - 1.0) * (R[:, None] / 2.0) ** R_power
    return {"k": sizes, "d": sizes, "R": R, "known": M, "context_only": M}


def tasks(change=lambda excess: excess, error=1e-3):
    """Measurements for B2 and B3: excess 4 d/B, after `change`."""
    d, B = np.array([32, 64, 128]), np.array([500, 2000, 8000])
    law = 4.0 * d[:, None] / B
    return {"d": d, "B": B, "ratio": 1.0 + change(law.copy()), "ratio_error": np.full((3, 3), error), "law": law,
            "projected": np.array(2.0), "context_only": d / 2.0}


def curve(trained, full, projected, error=1e-4):
    M = np.array([1.0, 10.0])
    f = {"M": M, "trained": np.full(2, trained), "trained_error": np.full(2, error), "full": np.full(2, full),
         "projected": np.full(2, projected)}
    for name, other in (("full", full), ("projected", projected)):
        f |= {f"minus_{name}": np.full(2, trained - other), f"minus_{name}_error": np.full(2, error)}
    return f


def vector_machines(accuracy, origin=0.6):
    return {"svm": np.full(2, accuracy), "svm_error": np.full(2, 1e-4), "svm_origin": np.full(2, origin),
            "svm_origin_error": np.full(2, 1e-4)}


@pytest.mark.parametrize("made, verdict", [
    (runs(), "holds"),
    (runs(lambda gap: np.r_[gap[:-1], gap[-2] * 1.001]), "fails"),                       # rises at the last stop
    (runs(lambda gap: 0.1 + gap), "fails"),                                              # falls, but not to 0
    (runs(lambda gap: gap ** 2), "fails"),                                               # another rate: off the law
    (runs(rate=0.01), "undecided"),                                                      # nears the law, too slowly to say
    (runs(kkt=1e-3), "undecided"),                                                       # compared with no solution
])
def test_b1(made, verdict):
    assert claims.b1(*made).verdict == verdict


def test_b1_fails_where_only_the_other_run_leaves():
    every, some, published = runs()
    assert claims.b1(every, {**some, "gap": some["gap"][::-1]}, published).verdict == "fails"


@pytest.mark.parametrize("sizes, finite, verdict", [
    (grid(), tasks(), "holds"),
    (grid(k_power=1.2), tasks(), "fails"), (grid(R_power=0.3), tasks(), "fails"),
    (grid(k_power=0.8), tasks(), "undecided"),                                           # fewer than claimed: suffices
    (grid(), tasks(lambda e: np.c_[e[:, :2], e[:, 1] + 0.1]), "fails"),                  # more tasks make it worse
    (grid(), tasks(lambda e: np.c_[e[:, :2], e[:, 1] - 1e-3]), "undecided"),             # no clear fall
    (grid(), tasks(lambda e: np.inf * e), "undecided"),                                  # no context is long enough
])
def test_b2(sizes, finite, verdict):
    assert claims.b2(sizes, finite).verdict == verdict


@pytest.mark.parametrize("finite, verdict", [
    (tasks(), "holds"), (tasks(lambda e: e + np.array([0.0, 0.0, 3.0])), "fails"),       # rises
    (tasks(lambda e: 0.0 * e + 40.0), "fails"),                                          # as bad as not knowing
    (tasks(lambda e: 0.0 * e + 3.5, error=0.5), "undecided"),                            # 4.5 against (1 + 8)/2 at d = 32
])
def test_b3(finite, verdict):
    assert claims.b3({2.0: curve(0.9, 0.6, 0.95)}, finite).verdict == verdict


@pytest.mark.parametrize("sizes, verdict", [
    (grid(), "holds"), (grid(k_power=0.9), "fails"), (grid(R_power=-0.3), "fails"), (grid(R_power=0.3), "undecided")])
def test_b4(sizes, verdict):
    assert claims.b4(sizes).verdict == verdict


@pytest.mark.parametrize("f, machine, verdict", [
    (curve(0.9, 0.6, 0.95), vector_machines(0.7), "holds"),
    (curve(0.5, 0.6, 0.95), vector_machines(0.4, 0.4), "fails"),                         # below the full MLE
    (curve(0.7, 0.6, 0.95), vector_machines(0.65), "fails"),                             # nearer to the full MLE
    (curve(0.9, 0.6, 0.95), vector_machines(0.91), "fails"),                             # below an SVM
    (curve(0.9, 0.6, 0.95), vector_machines(0.7, 0.95), "fails"),                        # below the other SVM
    (curve(0.9, 0.89, 0.91, error=0.1), vector_machines(0.7, 0.6), "undecided"),
])
def test_b5(f, machine, verdict):
    assert claims.b5({2.0: f}, {2.0: machine}, True).verdict == verdict
    assert claims.b5({2.0: f}, {2.0: machine}, False).verdict == "not in regime"


def test_b5_says_which_comparison_is_reversed():
    check = claims.b5({2.0: curve(0.9, 0.6, 0.95)}, {2.0: vector_machines(0.91)}, True)
    assert check.details["above"]["reversed"][0].startswith("R = 2, SVM, M = 1: -0.01")
    assert "2 reversed" in check.measured


@pytest.mark.parametrize("change, verdict", [
    ({}, "holds"), ({(500, 7.0): 0.1}, "fails"), ({(1500, 5.0): 0.9}, "fails")])
def test_b6(change, verdict):
    made = {(k, R): 0.5 + R / 30 - k / 20000 for k in (500, 1000, 1500) for R in (5.0, 7.0, 9.0)} | change
    figures = {key: curve(value, 0.65, 0.9) for key, value in made.items()}
    check = claims.b6(figures, True)
    assert check.verdict == verdict and claims.b6(figures, False).verdict == "not in regime"
    below = sum(2 * (value < 0.65) for value in made.values())                           # at two M each
    assert below > 0 and len(check.details["below_full_MLE"]) == below and f"in {below} of 18 places" in check.measured


def test_b6_without_a_difference_is_undecided():
    figures = {(k, R): curve(0.7, 0.65, 0.9) for k in (5, 10) for R in (5.0, 7.0)}
    assert claims.b6(figures, True).verdict == "undecided"


def test_limit_of_exponents_is_exact_for_a_parabola():
    x = np.array([0.4, 0.3, 0.2, 0.1])
    value, error = claims.limit_exponent(x, -4.0 + x - 2.0 * x ** 2)
    assert value == pytest.approx(-4.0, abs=1e-12) and error == pytest.approx(0.04 + 1e-9, abs=1e-12)
