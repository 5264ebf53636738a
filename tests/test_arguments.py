"""Every check of an argument: what passes, what does not, and that a message says which, what, and what is allowed."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from gsref.arguments import choice, finite, instance, integer, labels, real, real_array


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3)])
def test_integer_takes_every_integer(value):
    number = integer("D", value)
    assert number == 3 and type(number) is int


@pytest.mark.parametrize("value", [3.0, "3", None, True, np.True_, 3j, [3], np.array([3]), Decimal(3), np.nan])
def test_integer_refuses_what_is_none(value):
    with pytest.raises(TypeError, match="^D: got .*, expected an integer >= 1$"):
        integer("D", value)


@pytest.mark.parametrize("value, bounds, message", [
    (0, {}, "^D: got 0, expected an integer >= 1$"), (-1, {"least": 0}, "^D: got -1, expected an integer >= 0$"),
    (4, {"least": 0, "most": 3}, "^D: got 4, expected an integer from 0 to 3$")])
def test_integer_refuses_what_is_outside(value, bounds, message):
    with pytest.raises(ValueError, match=message):
        integer("D", value, **bounds)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.float64(0.5), Fraction(1, 2)])
def test_real_takes_every_real(value):
    number = real("sigma", value)
    assert number == 0.5 and type(number) is float


@pytest.mark.parametrize("value", ["0.5", None, True, np.False_, 1j, [0.5], np.array([0.5]), Decimal("0.5")])
def test_real_refuses_what_is_none(value):
    with pytest.raises(TypeError, match="^sigma: got .*, expected a real number$"):
        real("sigma", value)


@pytest.mark.parametrize("value, bounds, message", [
    (np.nan, {}, "^sigma: got nan, expected a finite number$"),
    (np.inf, {}, "^sigma: got inf, expected a finite number$"),
    (10 ** 400, {}, "^sigma: got inf, expected a finite number$"),
    (-10 ** 400, {}, "^sigma: got -inf, expected a finite"),
    (0.0, {"least": 0.0, "open_least": True}, "^sigma: got 0.0, expected a finite number > 0$"),
    (-1, {"least": 0.0}, "^sigma: got -1.0, expected a finite number >= 0$"),
    (2, {"least": 0.0, "most": 1.0}, "^sigma: got 2.0, expected a finite number >= 0 and <= 1$"),
    (2, {"most": 1.0}, "^sigma: got 2.0, expected a finite number <= 1$")])
def test_real_refuses_what_is_outside(value, bounds, message):
    with pytest.raises(ValueError, match=message):
        real("sigma", value, **bounds)


def test_real_takes_closed_bounds():
    assert real("x", 0, 0.0, 1.0) == 0.0 and real("x", 1, 0.0, 1.0) == 1.0
    assert real("x", 5e-324, 0.0, open_least=True) > 0


def test_choice():
    assert choice("mode", "full", ("full", "position_only")) == "full"
    for value in ("Full", "", None, 1, ["full"]):
        with pytest.raises(ValueError, match="^mode: got .*, expected one of full, position_only$"):
            choice("mode", value, ("full", "position_only"))


def test_instance():
    rng = np.random.default_rng(0)
    assert instance("rng", rng, np.random.Generator) is rng
    with pytest.raises(TypeError, match="^rng: got int, expected Generator$"):
        instance("rng", 0, np.random.Generator)


@given(hnp.arrays(st.sampled_from(["f8", "f4", "f2", ">f8", "i8", "i2", "u1"]), (2, 3), elements=st.integers(0, 9)))
def test_real_array_takes_real_arrays_and_leaves_them_alone(array):
    array.flags.writeable = False
    got = real_array("X", array, ("n", 3))
    assert got.dtype == np.float64 and (got == array).all()
    assert np.shares_memory(got, array) == (array.dtype == np.float64)                  # no copy without need


@pytest.mark.parametrize("value, kind", [
    (np.ones(3, complex), "complex128"), (np.array([1, None, 2]), "object"), (np.array(["a", "b", "c"]), "<U1"),
    (np.ones(3, bool), "bool"), ([1, 2j, 3], "complex128"), ([None, 1, 2], "object"),
    (np.zeros(3, "M8[s]"), "datetime64"),
    ([Decimal(1)] * 3, "object"), ([10 ** 400] * 3, "object")])
def test_real_array_refuses_other_kinds(value, kind):
    with pytest.raises(TypeError, match=f"^v: got dtype {kind}.*, expected real numbers$"):
        real_array("v", value, (3,))


def test_real_array_refuses_a_mask_and_not_what_it_hides():
    with pytest.raises(TypeError, match="^v: got a masked array, expected an ordinary array$"):
        real_array("v", np.ma.masked_array([1.0, 2.0], mask=[True, False]), (2,))


@pytest.mark.parametrize("value, shape, message", [
    (np.ones((2, 2)), (2,), r"^v: got shape \(2, 2\), expected \(2,\)$"),
    (np.ones(3), ("n", 2), r"^v: got shape \(3,\), expected \(n, 2\)$"),
    (np.ones((3, 3)), ("n", 2), r"^v: got shape \(3, 3\), expected \(n, 2\)$"),
    (1.0, (1,), r"^v: got shape \(\), expected \(1,\)$"),
    (np.ones((0, 2)), ("n", 2), r"^v: got shape \(0, 2\) \(an empty axis\), expected \(n, 2\)$"),
    ([[1.0], [1.0, 2.0]], ("n", 2), r"^v: got a ragged sequence, expected shape \(n, 2\)$")])
def test_real_array_refuses_other_shapes(value, shape, message):
    with pytest.raises(ValueError, match=message):
        real_array("v", value, shape)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_real_array_names_the_first_entry_that_is_not_finite(bad):
    array = np.ones((2, 3))
    array[1, 2] = bad
    with pytest.raises(ValueError, match=rf"^X: got {bad} at index \(1, 2\), expected finite numbers$"):
        real_array("X", array, ("n", "D"))


def test_real_array_refuses_what_float64_cannot_hold():
    if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
        with pytest.raises(ValueError, match="^X: got inf at index"):
            real_array("X", np.array([np.longdouble("1e400")]), (1,))


@pytest.mark.parametrize("value", [[1, -1, 1], [1.0, -1.0, 1.0], np.array([1, -1, 1], np.int8)])
def test_labels_are_float64_of_both_signs(value):
    y = labels("y", value, 3)
    assert y.dtype == np.float64 and y.tolist() == [1.0, -1.0, 1.0]


@pytest.mark.parametrize("value, message", [
    ([0, 1, 1], "^y: got 0 at index 0, expected labels -1 or \\+1$"),                     # row 8: 0/1 labels
    ([1, 2, 1], "^y: got 2 at index 1"), ([1, -1, 0.5], "^y: got 0.5 at index 2"),
    ([1, -1, 1 + 1e-12], "^y: got 1.00000000000[0-9]+ at index 2"),
    ([[1], [1], [1]], r"^y: got shape \(3, 1\), expected \(3,\)$"),                  # row 9: would broadcast to (n, n)
    ([1, 1], r"^y: got shape \(2,\)"), (1, r"^y: got shape \(\)"), ([1, np.nan, 1], "^y: got nan at index")])
def test_labels_refuse_everything_else(value, message):
    with pytest.raises(ValueError, match=message):
        labels("y", value, 3)


def test_finite_names_what_overflowed():
    array = np.ones((2, 2))
    assert finite("scores", array) is array
    for bad in (np.inf, -np.inf, np.nan):
        array[1, 0] = bad
        with pytest.raises(OverflowError, match=r"^scores: overflow at index \(1, 0\), expected arguments whose"):
            finite("scores", array)
