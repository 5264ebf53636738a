"""Each claim's check: right on trajectories whose law is known, and every verdict is reached by a planted one."""

import numpy as np
import pytest

from gsref import OrderParameters, Problem, theorem1
from gsref.descent import Trajectory
from gsref.late_phase import LATE_CONSTANT
from gsref.learning_rate import LearningRate
from gsref.theorem1 import Run


def run(D, loss_of_t, leak_of_t=lambda t: 1 / t, last=10**9, error=1e-9, order=None, mode="position_only", alpha=None):
    """A run with a prescribed loss and leak; alpha follows the late law unless it is given."""
    step = np.unique(np.round(np.geomspace(1, last, 400)).astype(np.int64))
    step = np.concatenate([[0], step])
    t = np.maximum(step, 1)
    loss = np.where(step == 0, np.log(2), loss_of_t(t))
    rows = np.zeros((len(step), 6))
    rows[:] = (order or OrderParameters()).to_array()
    rows[:, 0] = np.where(step == 0, 0, LATE_CONSTANT / (D * loss)) if alpha is None else alpha(step)
    velocity = np.ones((len(step), 6))
    path = Trajectory(step, loss, rows, velocity, np.where(step == 0, 1 - 1 / D, leak_of_t(t)),
                      np.full((len(step), 7), error))
    return Run(Problem(2, D), mode, LearningRate.parse("0.5/D"), 0.5 / D, path)


SIZES = (4, 8, 16, 32, 64)


def claimed(D):
    """What the theorem says with all constants one: L = D^(-1) t^(-1/3) is eps after 1/(D^3 eps^3) steps."""
    return run(D, lambda t: 1 / D * t ** (-1 / 3), lambda t: np.exp(-1.0 * D) * np.ones(len(t)))


def slower(D):
    """The law at eta = 0.5/D: t = D^-1 eps^-3."""
    return run(D, lambda t: (D * t) ** (-1 / 3), lambda t: D ** (-8 / 3) * (D * t / D**6) ** (-1 / 3), last=10**13)


def by_id(checks):
    return {check.id: check for check in checks}


def test_a_theorem_that_is_true_holds():
    checks = by_id(theorem1.scaling_checks([claimed(D) for D in SIZES], [1e-2, 3e-3, 1e-3, 1e-4, 1e-5]))
    assert {name: checks[name].verdict for name in ("A3", "A3.T", "A3.eps", "A4")} == {
        "A3": "holds", "A3.T": "holds", "A3.eps": "holds", "A4": "holds"}
    np.testing.assert_allclose(checks["A3.T"].details["exponents"].value, 3, atol=1e-3)
    np.testing.assert_allclose(checks["A3.eps"].details["in_D"].value, -3, atol=1e-3)


def test_another_law_fails_and_is_measured():
    checks = by_id(theorem1.scaling_checks([slower(D) for D in SIZES], [1e-3, 3e-4, 1e-4]))
    assert {name: checks[name].verdict for name in ("A3", "A3.T", "A3.eps", "A4")} == {
        "A3": "fails", "A3.T": "fails", "A3.eps": "fails", "A4": "fails"}
    np.testing.assert_allclose(checks["A3.T"].details["exponents"].value, 5, atol=1e-3)
    np.testing.assert_allclose(checks["A3.eps"].details["in_eps"].value, 3, atol=1e-3)
    np.testing.assert_allclose(checks["A3.eps"].details["in_D"].value, -1, atol=1e-3)
    np.testing.assert_allclose(checks["A4"].details["exponents"].value, -4 / 3, atol=1e-3)
    np.testing.assert_allclose(checks["A3"].details["power"].value, -8 / 3, atol=1e-3)


def test_attention_that_comes_to_its_law_from_above_is_not_called_a_failure():
    """log(1/leak) = D + 30: the ratio to D falls, but towards a constant.  log(1/leak) = 8 log D has no such limit."""
    shifted = [run(D, lambda t, D=D: 1 / D * t ** (-1 / 3), lambda t, D=D: np.exp(-D - 30) * np.ones(len(t)))
               for D in (4, 8, 16, 32, 64, 128)]
    assert theorem1.check_A3(shifted).verdict in ("undecided", "holds")
    powers = [run(D, lambda t, D=D: 1 / D * t ** (-1 / 3), lambda t, D=D: D**-8.0 * np.ones(len(t)))
              for D in (4, 8, 16, 32, 64, 128)]
    assert theorem1.check_A3(powers).verdict == "fails"


def test_too_little_is_undecided_or_not_in_regime():
    checks = by_id(theorem1.scaling_checks([claimed(4), claimed(8)], [0.3, 0.2]))
    assert checks["A3"].verdict == checks["A3.T"].verdict == "undecided"
    assert checks["A3.eps"].verdict == "not in regime" and checks["A5"].verdict == "not in regime"
    nowhere = [run(D, lambda t: 0.6 + 0 * t) for D in SIZES]
    assert {c.id: c.verdict for c in theorem1.scaling_checks(nowhere, [0.1])} == {
        "A3": "undecided", "A3.T": "undecided", "A3.eps": "not in regime", "A4": "undecided", "A5": "not in regime",
        "late": "not in regime"}


def test_condition_holds_at_large_D():
    assert theorem1.check_A5([claimed(1024)]).verdict == "holds"


def test_time_to_a_loss_and_its_error():
    path = slower(8)
    t, error = path.time_to(0.01)
    assert t == pytest.approx(1e6 / 8, rel=1e-3) and 0 < error < 1e-3 * t
    noisy = run(8, lambda t: (8 * t) ** (-1 / 3), error=1e-4)
    # the loss is uncertain by 1e-4 of 1e-2 at a slope of -1/3, the velocity by 1e-4 of 1
    assert noisy.time_to(0.01)[1] == pytest.approx(t * (3e-2 + 1e-4) + 0.5, rel=2e-2)
    assert path.time_to(1e-9) is None


def at(order, d=2, D=5):
    problem = Problem(d, D, relevant=1)
    path = Trajectory(np.array([0, 1, 2]), np.full(3, 0.5), np.array([np.zeros(6), order, order]), np.ones((3, 6)),
                      np.array([0.8, 0.5, 0.2]), np.full((3, 7), 1e-9))
    return [Run(problem, "full", LearningRate.parse("0.1"), 0.1, path)]


GOOD = np.array([0.7, -0.2, 0.05, 0.9, 0.8, -0.1])


@pytest.mark.derives("symmetry.1", "symmetry.2")
def test_symmetric_states_pass_A1_and_A2():
    assert theorem1.check_A1(at(GOOD)).verdict == "holds"
    assert theorem1.check_A2(at(GOOD)).verdict == "holds"
    assert theorem1.check_A1(at(GOOD)).details["worst"] < 1e-14


def test_a_state_off_the_manifold_fails_A1_and_A2(monkeypatch):
    """Planted: a v2, and a v1 across v*, of one part in a thousand."""
    plain = OrderParameters.to_params

    def with_v2(self, problem):
        v, W = plain(self, problem)
        v[problem.d:] += 1e-3
        return v, W

    def across(self, problem):
        v, W = plain(self, problem)
        v[1] += 1e-3
        return v, W
    monkeypatch.setattr(OrderParameters, "to_params", with_v2)
    assert theorem1.check_A1(at(GOOD)).verdict == "fails"
    monkeypatch.setattr(OrderParameters, "to_params", across)
    assert theorem1.check_A2(at(GOOD)).verdict == "fails"


def test_alpha_against_its_collected_error():
    good = at(GOOD)[0]
    small = run(4, lambda t: 0.5 / t, alpha=lambda t: np.where(t > 0, 1e-12, 0), error=1e-6)
    negative = run(4, lambda t: 0.5 / t, alpha=lambda t: np.where(t > 0, -1.0, 0), error=1e-12, last=100)
    assert theorem1.check_A2([small, good]).verdict == "undecided"
    assert theorem1.check_A2([negative, good]).verdict == "fails"


def test_late_law():
    assert theorem1.check_late([claimed(8)]).verdict == "holds"
    off = run(8, lambda t: 1 / 8 * t ** (-1 / 3), alpha=lambda t: 1.1 * LATE_CONSTANT * np.maximum(t, 0) ** (1 / 3))
    assert theorem1.check_late([off]).verdict == "fails"


def test_A3_says_what_leak_the_late_law_predicts():
    C, kappa = LATE_CONSTANT, Problem(2, 64).kappa
    beta = 6 * (64 / (np.pi * kappa))**2
    x = np.roots([2 * beta, 1, -1]).max()
    wanted = 2 * x * 63 / (kappa * C * 64)**2                  # alpha = C D at loss 1/D^2, sigma = 1
    check = theorem1.check_A3([slower(D) for D in SIZES])
    assert check.details["late_law_position_only"][-1] == pytest.approx(wanted, rel=1e-12)
    assert f"our late law {wanted:.3g}" in check.measured
