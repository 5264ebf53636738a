"""Claimed leading terms: right ones hold, wrong ones fail, and what cannot be seen is undecided."""

import numpy as np
import pytest

from gsref import OrderParameters, Problem, population
from gsref.late_phase import late_loss
from gsref.oracle import check_expansion


@pytest.mark.derives("oracle.10")
@pytest.mark.parametrize("power", [1, 2, 3.5])
def test_the_order_of_a_power_is_measured_exactly(power):
    found = check_expansion(lambda x: 1 + x, lambda x: 1 + x + 3 * x**power, 2.0 ** -np.arange(1, 6), power)
    assert found.verdict == "holds" and found.order == pytest.approx(power, abs=1e-6)
    assert check_expansion(lambda x: 1 + x, lambda x: 1 + x + 3 * x**power, 2.0 ** -np.arange(1, 6),
                           power + 1).verdict == "fails"


def test_an_error_of_the_exact_values_is_part_of_the_order():
    """Remainders x^2 whose exact values are known to a tenth of themselves: each slope to 0.2/log 2 at most."""
    found = check_expansion(lambda x: 0.0, lambda x: (x**2, 0.1 * x**2), 2.0 ** -np.arange(1, 6), 2)
    assert found.order == pytest.approx(2) and found.order_error == pytest.approx(0.2 / np.log(2), rel=1e-6)


def locked(h, D=8, sigma=1.0):
    problem = Problem(2, D, sigma)
    order = OrderParameters(alpha=h / (D * sigma), m_rr=200, m_ro=200, m_oo=-200 / (D - 1))
    found = population(problem, order, mode="position_only")
    return found.loss * h, found.loss_error * h


def test_the_late_law_of_the_loss_holds_to_second_order():
    """h L -> C as h = D alpha sigma rises, with a remainder of order h^-2; a constant off by a hundredth fails."""
    path = [10.0, 20.0, 40.0, 80.0, 160.0]
    claim = float(late_loss(Problem(2, 8), 1.0)) * 8
    assert check_expansion(lambda h: claim, locked, path, 2).verdict == "holds"
    assert check_expansion(lambda h: 1.01 * claim, locked, path, 2).verdict == "fails"


def test_remainders_below_their_error_are_undecided():
    found = check_expansion(lambda x: 1.0, lambda x: (1.0 + x**2, 1.0), 2.0 ** -np.arange(1, 6), 2)
    assert found.verdict == "undecided" and "below the error" in str(found)


@pytest.mark.parametrize("change, error, message", [
    ({"claim": 1}, TypeError, "claim: got int"),
    ({"exact": None}, TypeError, "exact: got NoneType"),
    ({"path": [1.0, 0.5, 0.25]}, ValueError, "path: got"),
    ({"path": [1.0, 0.5, 0.7, 0.2]}, ValueError, "path: got"),
    ({"order": np.nan}, ValueError, "order: got nan"),
    ({"claim": lambda x: [1.0, 2.0]}, ValueError, "claim: got shape"),
    ({"claim": lambda x: np.nan}, ValueError, "expected finite numbers"),
])
def test_bad_input(change, error, message):
    arguments = {"claim": lambda x: 1.0, "exact": lambda x: 1.0 + x, "path": [1.0, 0.5, 0.25, 0.125], "order": 1, **change}
    with pytest.raises(error, match=message):
        check_expansion(**arguments)
