"""Which arguments does `measure` refuse, and does training?  By name, before any work."""

from types import SimpleNamespace

import numpy as np
import pytest

from gsref.problem import Problem
from gsref.transfer.experiments import METHODS, measure
from gsref.transfer.sgd import train_attention, train_linear
from gsref.transfer.task import DownstreamTask

TASK = DownstreamTask(Problem(2, 2), np.array([1.0, 0.0]), margin=0.5)
START = SimpleNamespace(v=np.zeros(4), W=np.zeros((4, 4)))
BAD = {"method": ["sgd", None], "task": [None, 3], "seeds": [[], [1], 5, None, [1, -1], [1, 0.5], [[1, 2]]],
       "at": [[], [0, 2], [4, 4], [4, 2], 8, None, [1.5], [[8]]], "start": ["v", "", None, 0],
       "multiple": [0.0, -1.0, np.nan, np.inf, "1", None, True]}


@pytest.mark.parametrize("name, value", [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_argument_of_measure_is_named(name, value):
    for method in METHODS:
        good = {"method": method, "task": TASK, "pretrained": START, "seeds": [1, 2], "at": [4, 8]}
        with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
            measure(**{**good, name: value})


@pytest.mark.parametrize("pretrained", [None, START.v, SimpleNamespace(v=np.zeros(3), W=START.W)])
def test_something_that_is_not_pretrained_is_named(pretrained):
    with pytest.raises((TypeError, ValueError), match="^(pretrained|v): "):
        measure("pretrained", TASK, pretrained, [1, 2], [4, 8], start="pretrained")


@pytest.mark.parametrize("name, value", [("seeds", []), ("seeds", 3), ("seeds", None), ("at", 3), ("at", []),
                                         ("eta", [0.1, 0.2, 0.3]), ("eta", "x"), ("eta", np.nan), ("eta", 0.0)])
def test_a_bad_argument_of_training_is_named(name, value):
    good = {"eta": 0.1, "seeds": [1, 2], "at": [4]}
    with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
        train_linear(TASK, **{**good, name: value})
    with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
        train_attention(TASK, START.v, START.W, **{**good, name: value})
