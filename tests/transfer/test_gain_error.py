"""Is the error of a gain that of a quotient of independent numbers?"""

from types import SimpleNamespace

import numpy as np
import pytest

from gsref.transfer.claims import Cell, Results, gains


def test_the_errors_of_a_quotient_add_in_relative_squares():
    cell = Cell(4, 4)
    methods = {name: SimpleNamespace(needed=lambda eps, which, n=n: n)
               for name, n in (("logistic_sgd", (400.0, 40.0)), ("pretrained", (100.0, 5.0)))}
    cells, gain, error = gains(Results({cell: methods}, cell, (0.1,)), "logistic_sgd", "online")
    assert cells == [cell] and gain == [4.0]
    assert error[0] == pytest.approx(4.0 * np.hypot(0.1, 0.05), rel=1e-12)
