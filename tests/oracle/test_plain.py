"""The plain candidates: each step against the closed form, and what emulated sums do."""

import numpy as np
import pytest

from gsref.gradients import loss_and_gradient
from gsref.oracle.cases import transformer_cases
from gsref.oracle.plain import SUMS, Arithmetic, Plain, right_candidates
from gsref.oracle.precision import PRECISIONS

CASES = {case.id: case for case in transformer_cases(0)}


@pytest.mark.parametrize("name", right_candidates("float64"))
def test_each_order_of_operation_is_the_closed_form(name):
    for id in ("generic-3-5-4", "margins-mixed", "two-tokens", "one-token"):
        got, wanted = (f(**CASES[id].inputs) for f in (right_candidates("float64")[name], loss_and_gradient))
        for a, b in zip(got, wanted):
            assert np.allclose(a, b, rtol=1e-12, atol=1e-12 * np.abs(b).max())


def test_orders_of_operation_differ_in_the_last_bits():
    results = [candidate(**CASES["generic-3-5-4"].inputs)[2].tobytes() for candidate in right_candidates("float64").values()]
    assert len(set(results)) == len(results)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_result_is_on_the_grid(dtype):
    p = PRECISIONS[dtype]
    for candidate in right_candidates(dtype).values():
        for x in candidate(**CASES["generic-3-5-4"].on_grid(p)):
            assert np.array_equal(p.round(x), x)


@pytest.mark.parametrize("sums", SUMS)
def test_emulated_float32_sum_is_float32_arithmetic(sums):
    terms = np.random.default_rng(0).standard_normal((17, 3)).astype(np.float32)
    got = Arithmetic(PRECISIONS["float32"], sums).sum(terms.astype(np.float64), 0)
    if sums in ("forward", "backward"):
        total = np.zeros(3, np.float32)
        for term in terms if sums == "forward" else terms[::-1]:
            total = total + term
        assert np.array_equal(got, total)
    elif sums == "wide":
        assert np.array_equal(got, terms.astype(np.float64).sum(axis=0).astype(np.float32))
    assert got == pytest.approx(terms.sum(axis=0, dtype=np.float64), rel=1e-5)


def test_inputs_are_left_alone():
    case = CASES["generic-3-5-4"].inputs                      # read-only: a write would raise
    Plain()(**case)
