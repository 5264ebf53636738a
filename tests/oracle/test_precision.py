"""Emulated rounding against NumPy's own types, and against values worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gsref.oracle.precision import PRECISIONS, precision

numbers = st.floats(allow_nan=False, allow_infinity=True, width=64) | st.floats(-1e5, 1e5) | st.floats(-1e-4, 1e-4)


@pytest.mark.parametrize("name", ["float32", "float16"])
@given(x=st.lists(numbers, min_size=1, max_size=20))
def test_rounding_is_numpys(name, x):
    x = np.array(x)
    with np.errstate(over="ignore"):
        wanted = x.astype(name).astype(np.float64)
    assert np.array_equal(PRECISIONS[name].round(x), wanted)


@given(x=st.lists(numbers, min_size=1, max_size=20))
def test_float64_is_left_alone(x):
    assert np.array_equal(PRECISIONS["float64"].round(x), np.array(x))


@pytest.mark.parametrize("name, x, wanted", [
    ("bfloat16", 1 + 2**-8, 1.0), ("bfloat16", 1 + 3 * 2**-8, 1 + 2**-6), ("bfloat16", 1 + 2**-8 + 2**-30, 1 + 2**-7),
    ("bfloat16", 3.4e38, np.inf), ("bfloat16", -3.3895313892515355e38, -3.3895313892515355e38),
    ("bfloat16", 2.0**-133, 2.0**-133), ("bfloat16", 2.0**-135, 0.0),
    ("float16", 65519.9, 65504.0), ("float16", 65520.0, np.inf), ("float16", 2.0**-25, 0.0), ("float16", 1.5 * 2.0**-25, 2.0**-24),
    ("tf32", 1 + 2**-20, 1 + 2**-20),
])
def test_rounding_of_known_values(name, x, wanted):
    assert PRECISIONS[name].round(x) == wanted


def test_only_tf32_rounds_operands_again():
    x = 1 + 2.0**-20
    assert PRECISIONS["tf32"].round_operand(x) == 1.0
    assert all(p.round_operand(x) == x for name, p in PRECISIONS.items() if name != "tf32")


@pytest.mark.parametrize("name", PRECISIONS)
@given(x=st.floats(-1e4, 1e4))
def test_unit_roundoff_bounds_the_rounding_and_the_grid_is_fixed(name, x):
    p = PRECISIONS[name]
    once = p.round(x)
    assert abs(once - x) <= p.unit * abs(x) + p.tiny
    assert p.round(once) == once
    assert p.round_input(p.round_input(x)) == p.round_input(x)


@pytest.mark.parametrize("name", PRECISIONS)
def test_unit_roundoff_is_reached(name):
    p = PRECISIONS[name]
    x = 1 + p.unit * (1 - 2.0**-10)
    assert name == "float64" or abs(p.round(x) - x) > 0.99 * p.unit


@given(a=st.floats(-1e3, 1e3, width=32), b=st.floats(-1e3, 1e3, width=32))
def test_a_float32_operation_in_float64_and_then_rounded_is_the_float32_operation(a, b):
    p = PRECISIONS["float32"]
    x, y = np.float32(a), np.float32(b)
    assert p.round(float(x) * float(y)) == float(x * y)
    assert p.round(float(x) + float(y)) == float(x + y)
    assert y == 0 or abs(x) < 1e-30 or abs(y) < 1e-30 or p.round(float(x) / float(y)) == float(x / y)


def test_unknown_precision():
    with pytest.raises(ValueError, match="dtype: got 'float8', expected one of float64, float32, tf32, float16, bfloat16"):
        precision("float8")
