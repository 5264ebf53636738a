"""One block: what fails first, what is reported, and what is no evidence."""

import math

import numpy as np
import pytest

from gsref.oracle.compare import FAIL, INCONCLUSIVE, PASS, as_numbers, compare
from gsref.oracle.precision import PRECISIONS

P64 = PRECISIONS["float64"]
WANTED = np.array([[1.0, -2.0], [3.0, 4.0]])
ALLOWED = np.full((2, 2), 0.01)


def judged(got, again=None, wanted=WANTED, allowed=ALLOWED):
    return compare("case", "W11", np.asarray(got, dtype=float), wanted, allowed, P64, again)


def test_pass_and_worst_entry():
    c = judged(WANTED + [[0, 0.005], [0, -0.001]])
    assert (c.verdict, c.index, c.failing, c.entries, c.seen) == (PASS, (0, 1), 0, 4, True)
    assert (c.got, c.wanted) == (-1.995, -2.0)
    assert c.absolute == pytest.approx(0.005) and c.relative == pytest.approx(0.0025) and c.tolerance == 0.01


def test_fail_counts_entries_and_units_in_the_last_place():
    c = judged(WANTED + [[0.5, 0], [0.02, 0]])
    assert (c.verdict, c.index, c.failing) == (FAIL, (0, 0), 2) and "2 of 4 entries" in c.reason
    assert c.ulps == 0.5 / 2.0**-52


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_fails_with_its_place_whatever_the_tolerance(bad):
    got = WANTED.copy()
    got[1, 0] = bad
    for allowed in (ALLOWED, np.full((2, 2), np.inf), np.full((2, 2), np.nan)):
        c = judged(got, allowed=allowed)
        assert (c.verdict, c.index, c.failing) == (FAIL, (1, 0), 1) and "not finite" in c.reason and "(1, 0)" in c.reason


def test_shape_comes_before_numbers():
    c = judged(np.full((2, 3), np.nan))
    assert c.verdict == FAIL and c.reason == "shape: got (2, 3), wanted (2, 2)"


def test_two_calls_that_differ():
    noisy = WANTED + 0.05
    assert judged(WANTED, noisy).verdict == INCONCLUSIVE and "two calls differ by 0.05" in judged(WANTED, noisy).reason
    assert judged(WANTED + 0.025, noisy).verdict == INCONCLUSIVE          # beyond the tolerance, but not beyond the noise
    assert judged(WANTED + 1.0, WANTED + 1.05).verdict == FAIL           # no noise of that size explains the error
    assert judged(WANTED, WANTED + 0.001).verdict == PASS                # noise below the tolerance is reported only
    assert judged(WANTED, WANTED + 0.001).noise == pytest.approx(0.001)


def test_what_a_tolerance_hides_is_not_seen():
    c = judged(WANTED, allowed=np.full((2, 2), 1.01))
    assert c.verdict == PASS and not c.seen and "hides" in c.reason
    assert judged(WANTED, allowed=np.full((2, 2), 0.99)).seen            # the largest entry is 4 tolerances from zero


def test_zero_wanted():
    zero = np.zeros((2, 2))
    assert judged(zero, wanted=zero, allowed=zero).verdict == PASS
    c = judged(zero + 1e-300, wanted=zero, allowed=zero)
    assert c.verdict == FAIL and c.relative is None


def test_tolerance_of_a_bad_case_hides_nothing_else():
    """A tolerance that is not a number cannot fail an entry, nor pass one as seen."""
    c = judged(WANTED + 1, allowed=np.full((2, 2), np.nan))
    assert c.verdict == PASS and not c.seen


@pytest.mark.parametrize("value, complaint", [
    (1j, "type: got complex128"), ("x", "type: got <U1"), ([1, 2], "type: got int64"), (None, "type: got object"),
    (True, "type: got bool"), ([[1.0], [1.0, 2.0]], "cannot be converted to an array (ValueError"),
])
def test_what_is_no_number(value, complaint):
    array, problem = as_numbers(value)
    assert array is None and complaint in problem


def test_what_raises_when_converted():
    class Grumpy:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("call .detach() first\nand more")
    assert as_numbers(Grumpy()) == (None, "cannot be converted to an array (RuntimeError: call .detach() first)")


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, float])
def test_numbers_become_float64(kind):
    array, problem = as_numbers(kind(0.5))
    assert problem is None and array.dtype == np.float64 and array == 0.5
