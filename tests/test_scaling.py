"""Exponents and verdicts: exact on power laws, and every verdict is reached."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsref.scaling import Exponents, crossing, crossings, exponent_verdict, local_exponents


@given(st.floats(-6, 6), st.floats(-3, 3))
def test_power_law_has_its_exponent_everywhere(power, log_constant):
    x = np.array([2.0, 3.0, 7.0, 50.0])
    found = local_exponents(x, np.exp(log_constant) * x**power)
    np.testing.assert_allclose(found.value, power, atol=1e-12)
    np.testing.assert_array_equal(found.error, 0)


def test_errors_cover_a_disturbance_of_their_size():
    x = np.array([1.0, 2.0, 4.0])
    y = x**-3
    for signs in np.ndindex(2, 2, 2):
        disturbed = y * (1 + 1e-4 * (2 * np.array(signs) - 1))
        found = local_exponents(x, disturbed, 1e-4 * disturbed)
        assert np.all(np.abs(found.value + 3) <= found.error * (1 + 1e-3))


@pytest.mark.parametrize("value, error, claimed, verdict", [
    ([3.001, 3.0], [0, 0], 3.0, "holds"),
    ([3.5, 3.4], [0.2, 0.2], 3.0, "holds"),               # within three errors
    ([4.0, 3.4, 3.15], [0, 0, 0], 3.0, "holds"),           # the last change is as large as what is left
    ([4.0, 3.8, 3.7], [0, 0, 0], 3.4, "undecided"),       # still moving there
    ([4.57, 4.93], [0, 0], 3.0, "fails"),                 # moving away
    ([5.01, 5.0], [1e-9, 1e-9], 3.0, "fails"),            # settled elsewhere
    ([3.0], [0], 3.0, "undecided"),
])
def test_verdicts(value, error, claimed, verdict):
    value = np.array(value)
    assert exponent_verdict(Exponents(value, value, np.array(error, dtype=float)), claimed) == verdict


def test_crossing_of_a_power_law_is_exact():
    t = np.array([0, 1, 10, 100, 1000])
    y = np.array([1.0, *(0.5 * t[1:] ** -0.5)])
    where, slope = crossing(t, y, 0.5 * 37.0**-0.5)
    np.testing.assert_allclose([where, slope], [37, -0.5], rtol=1e-12)
    assert crossing(t, y, 1e-9) is None
    assert crossing(t, y, 2.0)[0] == 0 and np.isnan(crossing(t, y, 2.0)[1])


def test_crossings_of_rows_are_those_of_each_row():
    x = np.array([1.0, 2.0, 5.0, 9.0])
    y = np.array([[0.9, 0.7, 0.3, 0.1], [0.4, 0.2, 0.1, 0.05], [0.9, 0.8, 0.7, 0.6], [0.9, 0.4, 0.6, 0.2], [0.9, 0.5, 0.3, 0.2]])
    found = crossings(x, y, 0.5)
    alone = [crossing(x, row, 0.5) for row in y]
    assert np.isnan(found[2]) and alone[2] is None and found[1] == 1 and found[4] == 2
    np.testing.assert_array_equal(found[[0, 1, 3, 4]], [alone[k][0] for k in (0, 1, 3, 4)])



@pytest.mark.parametrize("x, y", [([1, 2], [1, 0]), ([2, 1], [1, 1]), ([1], [1]), ([1, 2], [1, np.nan]), ([1, 2], [1])])
def test_bad_input(x, y):
    with pytest.raises(ValueError, match="x, y: "):
        local_exponents(x, y)
