"""Training curves and noisy gradients against the exact recursion: right ones hold, planted faults are named."""

import numpy as np
import pytest

from gsref import OrderParameters, Problem, descend, loss_and_gradient
from gsref.oracle import check_trajectory, check_unbiased

PROBLEM, ETA = Problem(3, 4), 0.3
ORDER = OrderParameters(0.8, -0.2, 0.02, 1.2, 1.0, -0.3)


@pytest.fixture(scope="module")
def curve():
    return descend(PROBLEM, ETA, 12, rtol=1e-5).loss


@pytest.mark.derives("oracle.11")
def test_the_exact_curve_holds_and_a_departure_is_dated(curve):
    assert check_trajectory(curve, PROBLEM, ETA).verdict == "holds"
    other = curve.copy()
    other[7:] += 1e-3 * (curve[0] - curve[-1])
    found = check_trajectory(other, PROBLEM, ETA)
    assert found.verdict == "fails" and found.first == 7 and "step 7" in str(found)
    assert check_trajectory(descend(PROBLEM, 0.31, 12, rtol=1e-4).loss, PROBLEM, ETA).first == 1


def test_noise_is_allowed_for_and_too_much_of_it_is_undecided(curve):
    rng = np.random.default_rng(0)
    noisy = curve + 1e-4 * rng.standard_normal(13)
    assert check_trajectory(noisy, PROBLEM, ETA).verdict == "fails"
    assert check_trajectory(noisy, PROBLEM, ETA, errors=1e-4).verdict == "holds"
    assert check_trajectory(noisy, PROBLEM, ETA, errors=0.1).verdict == "undecided"
    noisy[3] = np.nan
    assert check_trajectory(noisy, PROBLEM, ETA, errors=1e-4).first == 3


def gradients(n, batch, seed, wrong=lambda dv, dW: (dv, dW)):
    rng = np.random.default_rng(seed)
    v, W = ORDER.to_params(PROBLEM)
    rows = [wrong(*loss_and_gradient(v, W, *PROBLEM.sample(batch, rng), PROBLEM.positions)[1:]) for _ in range(n)]
    return np.array([dv for dv, _ in rows]), np.array([dW for _, dW in rows])


@pytest.mark.derives("oracle.12")
def test_right_gradients_raise_no_more_false_alarms_than_stated():
    """40 runs at a false-alarm rate of 1e-2: five or more alarms have odds below 1e-4."""
    alarms = sum(check_unbiased(gradients(150, 64, seed), PROBLEM, ORDER, false_alarm=1e-2, rtol=1e-3).verdict == "fails"
                 for seed in range(40))
    assert alarms <= 4


@pytest.mark.parametrize("block, wrong", [
    ("W22", lambda dv, dW: (dv, dW * np.where(np.add.outer(np.arange(7) < 3, np.arange(7) < 3), 1, 2))),
    ("v1", lambda dv, dW: (dv * np.r_[np.full(3, 1.5), np.ones(4)], dW)),
    ("W12", lambda dv, dW: (dv, dW + 0.05 * np.eye(7, k=4))),
])
def test_a_planted_bias_is_named_by_its_block(block, wrong):
    found = check_unbiased(gradients(400, 256, 5, wrong), PROBLEM, ORDER, rtol=1e-3)
    assert found.verdict == "fails" and found.biased == (block,)
    assert block in str(found) and "false-alarm rate" in str(found)


def test_stated_power_is_reached():
    """A bias of the size under `detects` in one entry of v1 is found in at least 16 of 20 runs (stated: 9 of 10)."""
    size = next(b.detects for b in check_unbiased(gradients(150, 64, 99), PROBLEM, ORDER, rtol=1e-3).blocks if b.block == "v1")
    hits = sum("v1" in check_unbiased(gradients(150, 64, seed, lambda dv, dW: (dv + size * (np.arange(7) == 1), dW)),
                                      PROBLEM, ORDER, rtol=1e-3).biased for seed in range(20))
    assert hits >= 16


@pytest.mark.parametrize("call, message", [
    (lambda: check_trajectory([], PROBLEM, ETA), "losses: got"),
    (lambda: check_trajectory([0.7, 0.6], PROBLEM, ETA, steps=[1, 1]), "steps: got"),
    (lambda: check_trajectory([0.7, 0.6], PROBLEM, ETA, errors=-1), "errors: expected"),
    (lambda: check_unbiased(gradients(20, 8, 0), PROBLEM, ORDER), "gradients: got 20, expected at least 100"),
    (lambda: check_unbiased((np.zeros((200, 6)), np.zeros((200, 7, 7))), PROBLEM, ORDER), "gradients: dv: got shape"),
])
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
