"""The whole check: verdicts, mappings, arguments, and the line that repeats a failure."""

import numpy as np
import pytest

from gsref.gradients import loss_and_gradient
from gsref.model import logistic_factor, logistic_loss, states
from gsref.gradients import score_gradient
from gsref.oracle import assert_matches, check
from gsref.oracle.cases import transformer_cases
from gsref.oracle.verdict import UnknownCase


def derivation(v, W, X, y, P):
    """Everything along the computation, as a theorist would return it."""
    A, S, u, f = states(v, W, X, P)
    loss, dv, dW = loss_and_gradient(v, W, X, y, P)
    d = X.shape[2]
    return {"scores": A, "attention": S, "values": u, "logit": f, "loss": logistic_loss(y * f).mean(),
            "factor": logistic_factor(y * f), "G": score_gradient(A, S, u), "dv1": dv[:d], "dv2": dv[d:],
            "dW11": dW[:d, :d].copy(), "dW12": dW[:d, d:].copy(), "dW21": dW[d:, :d].copy(), "dW22": dW[d:, d:].copy()}


def wrong(**changes):
    def candidate(v, W, X, y, P):
        out = derivation(v, W, X, y, P)
        out.update({name: change(out) for name, change in changes.items()})
        return out
    return candidate


def test_the_closed_form_passes_in_every_mode():
    report = check(loss_and_gradient)
    assert report.passed and report.verdict == "pass" and report.diagnosis == () and report.unseen == ()
    assert {c.block for c in report.comparisons} == {"loss", "v1", "v2", "W11", "W12", "W21", "W22"}
    assert check(loss_and_gradient, strict=True).passed
    assert check(loss_and_gradient, rejects=True).passed


@pytest.mark.slow
def test_the_closed_form_passes_the_larger_set():
    assert check(loss_and_gradient, thorough=True).passed
    assert check(loss_and_gradient, thorough=True, strict=True, seed=5).passed


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_native_arithmetic_of_numpy(dtype):
    """The model in NumPy's own float32 and float16, written out."""
    def candidate(v, W, X, y, P):
        kind = X.dtype
        n, D, d = X.shape
        Z = np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)
        A = Z @ W @ Z.transpose(0, 2, 1)
        E = np.exp(A - A.max(axis=1, keepdims=True))
        S = E / E.sum(axis=1, keepdims=True)
        u = Z @ v
        ubar = np.einsum("nij,ni->nj", S, u)
        t = y * ubar.sum(axis=1)
        e = np.exp(-np.abs(t))
        c = -y * np.where(t < 0, kind.type(1), e) / (1 + e) / kind.type(n)
        G = c[:, None, None] * S * (u[:, :, None] - ubar[:, None, :])
        loss = (np.maximum(-t, 0) + np.log1p(e)).mean()
        result = loss, np.einsum("n,nij,nia->a", c, S, Z), np.einsum("nia,nij,njb->ab", Z, G, Z)
        assert all(x.dtype == kind for x in result)
        return result
    report = check(candidate, dtype)
    assert report.passed, str(report)


def test_mapping_of_all_steps_passes():
    report = check(derivation)
    assert report.passed and {c.block for c in report.comparisons} >= {"scores", "attention", "values", "logit", "factor", "G"}


@pytest.mark.parametrize("step, change", [
    ("scores", lambda out: out["scores"] * 0.5), ("attention", lambda out: out["attention"].transpose(0, 2, 1).copy()),
    ("values", lambda out: -out["values"]), ("logit", lambda out: out["logit"] / 5), ("factor", lambda out: 1 - out["factor"]),
    ("G", lambda out: out["G"] + 1e-6), ("dW21", lambda out: out["dW21"] * 1.001)])
def test_the_first_wrong_step_is_named(step, change):
    report = check(wrong(**{step: change, "dW22": lambda out: out["dW22"] * 1.5}))
    assert report.verdict == "fail" and report.first_wrong == step.removeprefix("d")
    assert f"first wrong along the computation: {report.first_wrong}" in str(report)


def test_mapping_of_one_step_is_enough():
    assert check(lambda *args: {"attention": derivation(*args)["attention"]}).passed
    report = check(lambda *args: {"attention": derivation(*args)["attention"] * 1.001})
    assert report.verdict == "fail" and report.first_wrong == "attention"


def test_inconclusive_where_no_case_can_show_an_error():
    report = check(loss_and_gradient, cases="margin-800-right")
    assert report.verdict == "inconclusive" and not report.passed
    assert report.unseen == ("loss", "v1", "v2", "W11", "W12", "W21", "W22")
    assert "no case that ran could show an error of" in str(report)


def test_a_wrong_answer_is_wrong_even_where_little_can_be_seen():
    def candidate(*args):
        loss, dv, dW = loss_and_gradient(*args)
        return loss, dv, dW + 1e-3
    assert check(candidate, cases="all-one").verdict == "fail"


def test_tolerance_multiplies_and_is_said():
    def candidate(*args):
        loss, dv, dW = loss_and_gradient(*args)
        return loss * (1 + 1e-13), dv, dW
    assert check(candidate).verdict == "fail"
    report = check(candidate, tolerance=1e4)
    assert report.passed and "tolerances are 10000 times the derived ones" in str(report)


def test_cases_outside_the_range_of_float16_are_named():
    report = check(lambda *args: loss_and_gradient(*args), "float16", cases=["gap-20000-wide", "generic-3-5-4"])
    assert list(report.skipped) == ["gap-20000-wide"] and "float16 ends at" in report.skipped["gap-20000-wide"]
    assert "not run, outside the range of float16: gap-20000-wide" in str(report)


def test_only_cases_outside_the_range_is_inconclusive():
    assert check(loss_and_gradient, "float16", cases="gap-20000-wide").verdict == "inconclusive"


def test_assert_matches():
    assert assert_matches(loss_and_gradient, cases="generic-3-5-4").passed
    with pytest.raises(AssertionError) as caught:
        assert_matches(lambda *args: (0.0, *loss_and_gradient(*args)[1:]), cases="generic-3-5-4")
    text = str(caught.value)
    assert text.startswith("FAIL") and "loss: 1 of 1 entry beyond the tolerance" in text and "diagnosis: " in text
    with pytest.raises(AssertionError, match="INCONCLUSIVE"):
        assert_matches(loss_and_gradient, cases="margin-800-right")


def test_acceptance_of_bad_labels_is_a_failure_if_asked():
    def lax(v, W, X, y, P):
        return loss_and_gradient(v, W, X, np.where(y.ravel() > 0, 1.0, -1.0), P)
    assert check(lax).passed
    report = check(lax, rejects=True)
    failed = {c.case for c in report.comparisons if c.verdict == "fail"}
    assert report.verdict == "fail" and failed == {"reject-labels-01", "reject-label-column"}


@pytest.mark.parametrize("options, error, message", [
    ({"dtype": "double"}, ValueError, "dtype: got 'double'"), ({"cases": "nope"}, ValueError, "case: got 'nope'"),
    ({"tolerance": float("nan")}, ValueError, "tolerance: got nan"), ({"tolerance": -1.0}, ValueError, "tolerance: got -1.0"),
    ({"tolerance": 0.0}, ValueError, "tolerance"), ({"seed": -1}, ValueError, "seed: got -1"),
    ({"seed": 1.5}, TypeError, "seed"), ({"system": "transformer"}, TypeError, "system: got str, expected System")])
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        check(loss_and_gradient, **options)


def test_candidate_that_cannot_be_called():
    with pytest.raises(TypeError, match="candidate: got 3"):
        check(3)


def test_unknown_case_suggests_a_near_one():
    with pytest.raises(UnknownCase, match="generic-3-5-4"):
        check(loss_and_gradient, cases="generic-3-5-5")


def test_every_failure_has_a_line_that_repeats_it_alone(typed):
    report = check(off_by_a_sign, dtype="float64", seed=3)
    failed = {c.case for c in report.comparisons if c.verdict == "fail"}
    assert failed == set(report.repeat)
    line = report.repeat["generic-3-5-4"]
    assert line == ("python -m gsref.oracle check oracle.test_verdict:off_by_a_sign --dtype float64 "
                    "--case generic-3-5-4 --seed 3")
    again = typed(line)
    assert again.returncode == 1 and "v1: 4 of 4 entries beyond the tolerance" in again.stdout, again.stderr


def off_by_a_sign(*args):
    loss, dv, dW = loss_and_gradient(*args)
    return loss, -dv, dW


def test_a_candidate_without_a_name_gets_a_line_of_python():
    candidate = lambda *args: (0.0, *loss_and_gradient(*args)[1:])                              # noqa: E731
    report = check(candidate, cases="generic-3-5-4")
    assert report.repeat["generic-3-5-4"] == "print(gsref.oracle.check(candidate, dtype='float64', cases='generic-3-5-4'))"
    import gsref.oracle
    assert "FAIL" in str(eval(report.repeat["generic-3-5-4"].removeprefix("print"), {"gsref": gsref, "candidate": candidate}))


def test_default_check_is_quick():
    assert check(loss_and_gradient).seconds < 10 and len(transformer_cases(0)) >= 40
