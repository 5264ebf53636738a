"""What is said of faults that are in no table: constants, digits, entries, regimes, behaviour, and nothing at all."""

import numpy as np
import pytest

from gsref.gradients import loss_and_gradient
from gsref.oracle import check


def changed(change, dtype="float64", **options):
    def candidate(v, W, X, y, P):
        return change(*loss_and_gradient(v, W, X, y, P), X)
    return check(candidate, dtype, **options).diagnosis


def test_a_constant_and_what_it_usually_is():
    assert changed(lambda loss, dv, dW, X: (loss, dv, dW * X.shape[1])) == ("W11, W12, W21, W22: D times what it should be",)
    assert changed(lambda loss, dv, dW, X: (loss, dv / np.sqrt(sum(X.shape[1:])), dW)) == \
        ("v1, v2: 1/sqrt(d + D) times what it should be",)
    assert changed(lambda loss, dv, dW, X: (loss, dv, dW * (X.shape[1] + 1) / 2)) == \
        ("W11, W12, W21, W22: kappa times what it should be",)
    assert changed(lambda loss, dv, dW, X: (2 * loss, dv, dW)) == \
        ("loss: a constant 2 times what it should be in every case (counted twice, or a factor of 0/1 labels)",)
    assert changed(lambda loss, dv, dW, X: (loss, -1.25 * dv, dW)) == \
        ("v1, v2: a constant -1.25 times what it should be in every case",)


def test_a_factor_that_changes():
    found = changed(lambda loss, dv, dW, X: (loss, dv * (1 + X.mean()**2 + 0.1), dW))
    assert len(found) == 1 and "a factor that changes from case to case" in found[0] and found[0].startswith("v1, v2")


def test_single_precision():
    """The most common one: jax without jax_enable_x64."""
    found = changed(lambda loss, dv, dW, X: (np.float32(loss), dv.astype(np.float32), dW.astype(np.float32)))
    assert "rounding errors of float32" in found[0] and "jax_enable_x64" in found[0]


def test_too_few_digits():
    rng = np.random.default_rng(0)

    def blurred(x):
        return x * (1 + 1e-10 * rng.standard_normal(np.shape(x)))
    seen = {}

    def candidate(v, W, X, y, P):
        key = (v.tobytes(), X.tobytes())
        if key not in seen:
            loss, dv, dW = loss_and_gradient(v, W, X, y, P)
            seen[key] = float(blurred(loss)), blurred(dv), blurred(dW)
        loss, dv, dW = seen[key]
        return loss, dv.copy(), dW.copy()
    found = check(candidate).diagnosis
    assert len(found) == 1 and ("errors of rounding" in found[0] or "rounding errors of float32" in found[0])


def test_one_entry():
    def change(loss, dv, dW, X):
        dW[0, 1] *= 1.01
        return loss, dv, dW
    found = changed(change, cases=["one-feature", "zero-v", "margin-37-right"])
    assert found[0].startswith("single entries are wrong: W12[0, 0] in 1 case (one-feature)") and "1.01 to 1.01 times" in found[0]


def test_nan_entry():
    def change(loss, dv, dW, X):
        dW[-1, 0] = np.nan
        return loss, dv, dW
    found = changed(change, cases=["generic-3-5-4", "large-W"])
    assert found == ("single entries are wrong: W21[4, 0] in 2 cases (generic-3-5-4), NaN or inf",)


def test_one_regime_only():
    def change(loss, dv, dW, X):
        return (loss if loss < 90 else np.inf), dv, dW
    found = changed(change)
    assert "overflow (inf or NaN) in one regime only: large margins" in found[-1]
    assert "margin-100-wrong" in found[-1]


def test_state_and_shape_and_exception():
    count = []

    def grows(*args):
        count.append(1)
        loss, dv, dW = loss_and_gradient(*args)
        return loss, dv, dW * (1 + 1e-3 * len(count))
    assert "two calls with the same input differ" in check(grows).diagnosis[0]
    assert changed(lambda loss, dv, dW, X: (np.array([loss]), dv, dW))[0].startswith("loss: shape: got (1,), wanted () (in 50 cases")
    assert "raised ZeroDivisionError" in changed(lambda *args: 1 / 0)[0]


def test_no_known_pattern_is_said_plainly():
    found = changed(lambda loss, dv, dW, X: (loss, dv + 0.1 * np.cos(np.arange(len(dv))) * dv.mean(), dW**2))
    assert len(found) == 1 and found[0].startswith("no known pattern")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_right_candidate_gets_no_diagnosis(dtype):
    assert changed(lambda loss, dv, dW, X: (loss, dv, dW), dtype) == ()
