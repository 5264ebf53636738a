"""The benchmark of the gradient: it checks answers before times, and its counts and ratios are what they say."""

import numpy as np
import pytest

from gsref.bench import gradient, peers
from gsref.gradients import loss_and_gradient


@pytest.mark.parametrize("name", [name for name in peers.CONTENDERS if "compile" not in name])
def test_every_installed_contender_gives_the_answer_of_the_plain_formulas(name):
    package, build, _ = peers.CONTENDERS[name]
    if package is not None:
        pytest.importorskip(package)
    arrays = gradient.inputs(7, 3, 4)
    answers = [np.asarray(part, dtype=float) for part in build(arrays)()]
    assert gradient.difference(answers, loss_and_gradient(*arrays)) < 1e-13


def test_difference_sees_a_wrong_answer_in_each_part():
    right = [np.asarray(part) for part in loss_and_gradient(*gradient.inputs(7, 3, 4))]
    for part in range(3):
        wrong = [a * (1.01 if k == part else 1) for k, a in enumerate(right)]
        assert gradient.difference(wrong, right) > 1e-3


def test_ratios_take_the_best_of_each_side():
    medians = {"gsref, 1 thread": 2.0, "gsref, 2 threads": 1.0, "autograd": 8.0, "jax, blocks": 3.0}
    [found] = gradient.ratios([{"shape": (1, 2, 3), "medians": medians, "floor": 0.5}])
    assert found == {"shape": (1, 2, 3), "best": "jax, blocks", "to best": 3.0, "to autograd": 8.0, "one thread": 2.0,
                     "two threads": 1.0, "floor": 0.5}
    alone = {"gsref, 1 thread": 2.0, "gsref, 2 threads": 1.0}
    [found] = gradient.ratios([{"shape": (1, 2, 3), "medians": alone, "floor": 0.5}])
    assert found["to best"] is None and gradient.geometric_mean([None]) is None
    assert gradient.geometric_mean([1.0, None, 4.0]) == pytest.approx(2.0)
    assert gradient.means_line({"to best": None, "one thread": 1.18174, "floor": 0.3469}) == (
        "time over our best, geometric means: one thread 1.18, products and exp alone 0.35")
