"""The benchmark of expectations: what it prints, and that its ratios are measured."""

import numpy as np
import pytest

from gsref.bench import population as bench
from gsref.bench.__main__ import main


def test_names_are_dispatched(capsys):
    assert main(["nothing"]) == 2 and "expected one of gradient, population" in capsys.readouterr().err
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")] == ["gradient", "population"]


def test_point_prints_all_rules_side_by_side(capsys):
    assert main(["population", "--rtol", "1e-2", "--point", "2", "3", "0.5", "-0.1", "0.05", "0.3", "0.2", "-0.2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["sparse_grid", "tensor", "rqmc"]
    for line in lines[2:]:
        _, loss, estimate, true_error, nodes, *_ = line.split()
        assert 0.4 < float(loss) < 0.8 and float(true_error) <= 3 * float(estimate) and int(nodes) > 10


@pytest.mark.parametrize("point", [["2.5", *["0"] * 7], ["2", "1", "0", "0", "1", "0", "0", "0"]])
def test_bad_points_are_refused(point, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["population", "--point", *point])
    assert stop.value.code == 2 and len(capsys.readouterr().err.splitlines()) == 1


def test_relative_is_the_size_that_rtol_is_about():
    value = np.array([0.5, 0.2, 0, 0, 0, 0, 0])
    assert bench.relative(bench.EIGHT, np.array([1e-3, 0, 0, 0, 0, 0, 0]), value) == pytest.approx(2e-3)
    assert bench.relative(bench.EIGHT, np.array([0, 1e-3, 0, 0, 0, 0, 0]), value) == pytest.approx(5e-3)


@pytest.mark.slow
def test_cost_does_not_depend_on_size_in_time():
    """Ratios of times at equal level; medians of machines under load move, the best of five calls hardly."""
    base = bench.level_time(8, 4)
    for D, d in ((64, 4), (512, 4), (4096, 4), (8, 64), (8, 1000)):
        assert bench.level_time(D, d) <= 1.5 * base
