"""The right values, against loops with 850 digits, and against values that are known."""

import math
from decimal import Decimal

import numpy as np
import pytest

from gsref.oracle.cases import transformer_cases
from gsref.oracle.reference import DIGITS, blocks, context, decimals, evaluate, floats, reference as right_values
from gsref.oracle.tolerance import decimal_errors
from reference import reference as loops

CASES = {case.id: case for case in transformer_cases(0, True)}
HARD = ["generic-4-3-5", "gap-37", "margins-mixed", "margin-37-right", "margin-800-right", "two-tokens"]


@pytest.mark.derives("oracle.1")
@pytest.mark.parametrize("id", HARD)
def test_reference_against_loops_with_850_digits(id):
    case = CASES[id]
    keep = slice(0, 2 if id == "margins-mixed" else 1)                       # the loops are slow
    inputs = {**case.inputs, "X": case.inputs["X"][keep], "y": case.inputs["y"][keep]}
    got = evaluate(**inputs)
    for name, wanted in zip(("loss", "dv", "dW"), loops(*inputs.values())):
        wanted = np.array(wanted, dtype=object)
        with context(DIGITS):
            scale = max(abs(x) for x in wanted.flat)
            worst = max(abs(a - b) for a, b in zip(np.asarray(got[name], dtype=object).flat, wanted.flat))
            assert worst <= scale * Decimal("1e-44"), name
        assert np.array_equal(floats(got[name]), wanted.astype(np.float64)), name        # the same float64, to the last bit


def test_reference_keeps_its_digits_where_float64_loses_them():
    """Scores (0, 37.43), values (0, 1): G = (-5.55e-17, +5.55e-17), where 1 - S = 0 in float64."""
    v, W, P = np.array([0.0, 0.0, 1.0]), np.zeros((3, 3)), np.array([[1.0, 0.0], [0.0, 1.0]])
    W[2, 1] = W[2, 2] = 37.43
    X = np.zeros((1, 2, 1))
    values = {name: floats(x) for name, x in evaluate(v, W, X, np.ones(1), P).items()}
    assert values["scores"][0].tolist() == [[0.0, 0.0], [37.43, 37.43]]
    tail = math.exp(-37.43)
    assert values["G"][0, :, 0] == pytest.approx([-tail, tail], rel=1e-15)
    assert -values["G"][0, 0, 0] == pytest.approx(5.55e-17, rel=2e-3)


@pytest.mark.parametrize("margin, loss, factor", [
    (0.0, math.log(2), 0.5), (37.0, 8.533047625744066e-17, 8.533047625744065e-17), (-37.0, 37.0, 1.0),
    (800.0, 0.0, 0.0), (-800.0, 800.0, 1.0), (1e-20, math.log(2), 0.5)])
def test_loss_and_factor_at_known_margins(margin, loss, factor):
    values = evaluate(np.array([margin, 0.0]), np.zeros((2, 2)), np.ones((1, 1, 1)), np.ones(1), np.ones((1, 1)))
    assert float(values["loss"]) == pytest.approx(loss, rel=1e-15) and float(values["factor"][0]) == pytest.approx(factor, rel=1e-15)


@pytest.mark.parametrize("id", ["generic-3-5-4", "gap-100", "margin-100-right", "large-W"])
@pytest.mark.parametrize("digits", [20, DIGITS])
def test_own_error_is_known(id, digits):
    """The rounding-error analysis, applied to 20 and 50 digits, bounds the difference from 80 digits."""
    inputs = CASES[id].inputs
    exact, rough = evaluate(**inputs, digits=80), evaluate(**inputs, digits=digits)
    unit = 10.0**(1 - digits) / 2
    known = decimal_errors(**inputs, digits=digits)
    for name in exact:
        with context(80):
            error = floats(np.abs(np.asarray(rough[name] - exact[name], dtype=object)))
        size = np.abs(floats(exact[name]))
        assert (error <= known[name] + 4 * unit * size).all(), name
        assert digits < DIGITS or (known[name] <= 1e-20 * size.max()).all(), name      # far below the rounding to float64


def test_decimals_are_exact_and_context_is_left_alone():
    import decimal
    before = decimal.getcontext().prec
    with context(60):
        assert decimals([0.1])[0] == Decimal(0.1)
    assert decimal.getcontext().prec == before


def test_blocks_are_cut_where_features_end():
    inputs = CASES["generic-3-5-4"].inputs
    out = right_values(**inputs)
    whole = {name: floats(x) for name, x in evaluate(**inputs).items()}
    assert np.array_equal(np.block([[out["dW11"], out["dW12"]], [out["dW21"], out["dW22"]]]), whole["dW"])
    assert np.array_equal(np.concatenate([out["dv1"], out["dv2"]]), whole["dv"])
    assert set(blocks({"loss": 1.0}, 3)) == {"loss"}
