"""What a candidate does besides computing."""

import numpy as np
import pytest

from gsref.gradients import loss_and_gradient
from gsref.oracle import check
from gsref.oracle.cases import transformer_cases
from gsref.oracle.guards import call
from gsref.oracle.precision import PRECISIONS
from gsref.oracle.system import TRANSFORMER

CASE = {case.id: case for case in transformer_cases(0)}["generic-3-5-4"]


def problems(candidate, dtype="float64"):
    p = PRECISIONS[dtype]
    return call(candidate, CASE.on_grid(p), TRANSFORMER, p).problems


def test_a_good_candidate_has_none():
    assert problems(loss_and_gradient) == []


def test_exception_is_a_failure_of_the_case_and_not_the_end():
    def candidate(v, W, X, y, P):
        if len(X) == 4:
            raise FloatingPointError("boom\nsecond line")
        return loss_and_gradient(v, W, X, y, P)
    report = check(candidate)
    failed = {c.case for c in report.comparisons if c.verdict == "fail"}
    assert failed == {case.id for case in transformer_cases(0) if case.sizes["n"] == 4}
    assert len({c.case for c in report.comparisons}) == len(transformer_cases(0))
    assert any("raised FloatingPointError: boom (in candidate, line " in c.reason for c in report.comparisons)


def test_system_exit_is_a_failure_but_an_interruption_is_not():
    def leaves(*args):
        raise SystemExit(3)

    def interrupted(*args):
        raise KeyboardInterrupt
    assert "SystemExit" in problems(leaves)[0][1]
    with pytest.raises(KeyboardInterrupt):
        problems(interrupted)


@pytest.mark.parametrize("name, k", [("v", 0), ("W", 1), ("X", 2), ("y", 3), ("P", 4)])
def test_changed_input_is_named_even_if_it_is_a_sign_of_zero(name, k):
    def candidate(*args):
        result = loss_and_gradient(*args)
        flat = args[k].reshape(-1)
        flat[0] = -flat[0] if k != 3 else 1.5
        return result
    assert ("call", f"changes its input {name}") in problems(candidate)


def test_output_that_is_an_input():
    found = problems(lambda v, W, X, y, P: (loss_and_gradient(v, W, X, y, P)[0], v, W.T))
    assert ("dv", "shares memory with the input v") in found and ("dW", "shares memory with the input W") in found


def test_output_that_is_kept_between_calls():
    buffer = np.empty((9, 9))

    def candidate(v, W, X, y, P):
        loss, dv, dW = loss_and_gradient(v, W, X, y, P)
        buffer[:] = dW * (1 + buffer[0, 0] * 0)
        buffer[0, 0] += np.random.default_rng(None).uniform()
        return loss, dv, buffer
    found = problems(candidate)
    assert ("dW", "shares memory with dW of the next call") in found
    assert ("dW", "changes when the candidate is called again") in found


@pytest.mark.parametrize("result, complaint", [
    (1.0, "returned float, wanted a tuple (loss, dv, dW) or a mapping"),
    ((1.0, 2.0), "returned 2 values"), ({}, "an empty mapping"), ({"dWW": 1.0}, "unknown names ['dWW']"), (None, "NoneType")])
def test_result_of_the_wrong_kind(result, complaint):
    assert complaint in problems(lambda *args: result)[0][1]


@pytest.mark.parametrize("dtype, kind", [("float64", "float64"), ("float32", "float32"), ("tf32", "float32"),
                                         ("float16", "float16"), ("bfloat16", "float32")])
def test_what_a_candidate_gets(dtype, kind):
    got = []
    problems(lambda *args: got.append(args), dtype)
    assert all(x.dtype == kind and x.flags.c_contiguous and x.flags.writeable for x in got[0])


def test_two_calls_that_disagree_are_inconclusive_or_wrong():
    rng = np.random.default_rng(0)

    def noisy(size):
        def candidate(*args):
            loss, dv, dW = loss_and_gradient(*args)
            return loss, dv, dW + size * rng.standard_normal(dW.shape)
        return check(candidate, cases=["generic-3-5-4"])
    assert noisy(0.0).verdict == "pass"
    assert noisy(1e-17).verdict == "pass"
    report = noisy(1e-14)
    assert report.verdict in ("inconclusive", "fail") and "two calls" in str(report)
