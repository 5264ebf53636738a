"""The oracle on the metalearner: right candidates pass in every precision, planted faults fail and are named."""

import numpy as np
import pytest

from gsref.metalearner import oracle, oracle_faults
from gsref.metalearner.model import loss_and_gradient
from gsref.metalearner.oracle import METALEARNER
from gsref.oracle import assert_matches, check, table
from gsref.oracle.precision import PRECISIONS

NAMED = ("sign", "sum-for-mean", "dW-transposed", "label-missing-in-dW", "label-missing-in-t", "context-summed",
         "context-labels-missing", "W-transposed", "factor-reversed", "loss-in-bits", "last-task-dropped")
MOST = [name if name in ("float64", "bfloat16") else pytest.param(name, marks=pytest.mark.slow) for name in PRECISIONS]


def candidate(W, X, Y, x, y):
    """The package's own closed form, on the examples of the contexts."""
    assert (np.abs(Y) == 1.0).all()
    return loss_and_gradient(W, np.einsum("bn,bnd->bd", Y, X) / Y.shape[1], x, y)


def wrong_sign(*inputs):
    loss, dW = candidate(*inputs)
    return loss, -dW


def test_the_closed_form_passes():
    report = check(candidate, system=METALEARNER, thorough=True)
    assert report.passed and report.unseen == () and {c.block for c in report.comparisons} == {"loss", "dW"}, str(report)
    assert assert_matches(candidate, system=METALEARNER, seed=3).system == "metalearner"


@pytest.mark.derives("meta.17", "meta.18")
@pytest.mark.parametrize("dtype", MOST)
def test_right_candidates_of_every_order_pass(dtype):
    used = 0.0
    for name, right in oracle_faults.right_candidates(dtype).items():
        report = check(right, dtype, system=METALEARNER)
        assert report.passed, f"{name}: {report}"
        used = max(used, max(c.absolute / c.tolerance for c in report.comparisons if c.tolerance))
    assert used > 0.05                                     # tolerances are not so wide that nothing comes near


@pytest.mark.parametrize("dtype", MOST)
def test_every_known_fault_is_caught(dtype):
    caught = table.catches(dtype, METALEARNER, first=True)
    assert len(caught) == len(oracle_faults.FAULTS) and [name for name, ids in caught.items() if not ids] == []


@pytest.mark.parametrize("fault", [fault for fault in oracle_faults.FAULTS if fault.name in NAMED], ids=lambda fault: fault.name)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_common_faults_are_named(fault, dtype):
    report = check(oracle_faults.known_wrong(dtype)[fault.name], dtype, system=METALEARNER)
    assert report.verdict == "fail" and fault.says in report.diagnosis, report.diagnosis


def test_a_constant_is_named_by_its_size():
    report = check(lambda W, X, Y, x, y: (candidate(W, X, Y, x, y)[0], candidate(W, X, Y, x, y)[1] * X.shape[1] ** 2),
                   system=METALEARNER)
    assert report.diagnosis == ("dW: N^2 times what it should be",)


def test_a_mapping_of_steps_shows_the_first_wrong_one():
    def steps(W, X, Y, x, y):
        muhat = np.einsum("bn,bnd->bd", Y, X) / Y.shape[1]
        loss, dW = loss_and_gradient(W, muhat, x, y)
        return {"muhat": muhat, "margin": -y * np.einsum("bi,ij,bj->b", muhat, W, x), "loss": loss, "dW": dW * 2.0}
    report = check(steps, system=METALEARNER)
    assert report.verdict == "fail" and report.first_wrong == "margin"


def test_unusable_inputs_must_raise():
    assert check(candidate, system=METALEARNER, rejects=True).passed
    report = check(oracle_faults.Plain(), system=METALEARNER, rejects=True)
    assert {c.case for c in report.comparisons if c.verdict == "fail"} >= {"reject-labels-01", "reject-nan"}


@pytest.mark.derives("meta.18")
def test_sizes_bound_the_values_and_decimals_agree_with_float64():
    for case in oracle.cases(1, True):
        allowed, sizes = oracle.tolerances(**case.inputs)
        wanted = oracle.evaluate(**case.inputs)
        assert set(allowed) == set(wanted) == set(sizes)
        for name in wanted:
            assert (np.abs(wanted[name]) <= sizes[name] * (1 + 1e-9) + allowed[name]).all(), (case.id, name)


def test_the_command_line_repeats_a_failure(typed):
    report = check(wrong_sign, system=METALEARNER)
    line = report.repeat["generic-3-5-4"]
    assert line == ("python -m gsref.oracle check metalearner.test_oracle:wrong_sign --dtype float64 "
                    "--system gsref.metalearner.oracle:METALEARNER --case generic-3-5-4")
    again = typed(line)
    assert again.returncode == 1 and "diagnosis: dW has the wrong sign" in again.stdout, again.stderr
