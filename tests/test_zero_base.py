"""The sparse grid around zero, every group given: closed sets, costs, errors that are what they say."""

import numpy as np
import pytest

from gsref import OrderParameters, Problem
from gsref.exchangeable import ExchangeableGrid
from gsref.few_groups import FewGroups
from gsref.population import reduced_law, velocity_scales
from gsref.position_only import position_only
from gsref.sparse_grid import parents
from gsref.zero_base import WIDEST, ZeroBase
from honest import PATHS


def zero(d, D, values):
    problem, order = Problem(d, D), OrderParameters(*values)
    law, layer, s_irr = reduced_law(problem, order)
    grid = ExchangeableGrid(law, layer, s_irr, 1 / velocity_scales(problem))
    return ZeroBase(law, layer, grid.scale), FewGroups(law, layer, grid.scale)


@pytest.mark.derives("quad.11")
@pytest.mark.parametrize("row", [1, 6, 16])
def test_agrees_with_equal_spacing(row):
    """At D = 4 both can be had: two rules that share no node but zero."""
    D, d, *values = PATHS[row]
    values[2], D = 0.0, min(D, 5)
    around_zero, spaced = zero(1, D, values)
    value, error, fine = around_zero.estimate(1e-5, 6, 2**20)
    wanted, off, _ = spaced.estimate(1e-6, 0, 2**21)
    assert np.all(np.abs(value - wanted)[:7] <= (error + fine + off)[:7])
    assert np.max((np.abs(value - wanted) / around_zero.scale(wanted))[:7]) < 1e-5


@pytest.mark.derives("quad.9")
@pytest.mark.parametrize("row", [13, 18, 23, 28, 33])
def test_error_is_honest(row):
    D, d, *values = PATHS[row]
    rough, fine = zero(d, D, values)[0], zero(d, D, values)[0]
    value, error, rule = rough.estimate(1e-4, 4, 2**20)
    truth, truth_error, truth_rule = fine.estimate(1e-6, 7, 2**20)
    assert np.all(np.abs(value - truth)[:7] <= (error + rule + truth_error + truth_rule)[:7])
    assert np.max((error / rough.scale(value))[:7]) < 3e-4 and rough.nodes < 0.5 * fine.nodes
    # planted: half the features' reach (a wrong law) is told apart
    wrong = zero(d, D, [values[0], 1.01 * values[1], *values[2:]])[0].estimate(1e-4, 4, 2**20)[0]
    assert np.any(np.abs(wrong - truth)[:7] > (error + rule + truth_error + truth_rule)[:7])


@pytest.mark.derives("quad.9")
@pytest.mark.parametrize("D, alpha", [(6, 0.5), (8, 0.5), (12, 0.35), (20, 0.25)])
def test_error_is_honest_where_the_answer_is_exact(D, alpha):
    """At a = b = 0 loss and velocities are known to 1e-13; s_irr is 0.5 to 0.9, and the terms in the sum are all."""
    order = OrderParameters(alpha, 0, 0, 1.5, 1.5, -0.1)
    exact = np.delete(position_only(D, alpha, order)[0], [2, 3, 7])
    assert 0.5 < reduced_law(Problem(1, D), order)[2] < WIDEST
    for target in (3e-4, 3e-5, 3e-6):
        value, error, fine = zero(1, D, [alpha, 0, 0, 1.5, 1.5, -0.1])[0].estimate(target, 6, 2**19)
        assert np.all(np.abs(np.delete(value, [2, 3, 7]) - exact) <= np.delete(error + fine, [2, 3, 7]))


def test_beyond_its_range_the_error_would_not_be_honest():
    """Why WIDEST: at s_irr 1.85 and D = 20 terms are small by chance."""
    alpha = 0.8 * np.sqrt(8 / 20)
    order = OrderParameters(alpha, 0, 0, 1.5, 1.5, -0.1)
    exact, s_irr = position_only(20, alpha, order)[0], reduced_law(Problem(1, 20), order)[2]
    value, error, fine = zero(1, 20, [alpha, 0, 0, 1.5, 1.5, -0.1])[0].estimate(3e-4, 3, 2**19)
    off = np.abs(np.array(value) - exact) > error + fine
    assert s_irr > WIDEST and np.any(np.delete(off, [2, 3, 7]))


def test_sets_are_closed_and_cost_the_same_at_every_size():
    nodes = []
    for D in (8, 16, 32):
        scale = np.sqrt(7 / (D - 1))
        grid = zero(1, D, [0.3 * scale, -0.1, 0, np.log(D), np.log(D), -0.1])[0]
        for partition in ((), (1,), (1, 1), (2,), (2, 1)):
            grid.term(partition, 3)
        nodes.append(grid.nodes)
        grid.estimate(1e-5, 5, 2**20)
        found = {partition for partition, _ in grid.done}
        assert all(parent in found for partition in found for parent in parents(partition))
    assert len(set(nodes)) == 1


def test_out_of_range_is_noticed():
    """Scores in the tens: terms do not fall, and the error says so."""
    grid = zero(1, 8, [3.7, -12.0, 0, 1.1, 4.0, -0.6])[0]
    value, error, fine = grid.estimate(1e-4, 4, 2**16)
    assert np.max(((error + fine) / grid.scale(value))[:7]) > 0.01
