"""The rounding-error analysis: each step against perturbations, the whole against emulated and stochastic rounding."""

import math
from dataclasses import dataclass, field, replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from gsref.gradients import loss_and_gradient
from gsref.model import logistic_factor, logistic_loss
from gsref.oracle import tolerance as analysis
from gsref.oracle.cases import Draw, inputs, transformer_cases
from gsref.oracle.compare import PASS
from gsref.oracle.guards import call
from gsref.oracle.plain import Arithmetic, Plain, right_candidates
from gsref.oracle.precision import PRECISIONS, Precision
from gsref.oracle.system import TRANSFORMER
from gsref.oracle.tolerance import LAMBDA, rounding_errors, tolerances
from gsref.oracle.verdict import judge, prepare

ROUNDED = 1e-15                                          # what the test's own differences of O(1) numbers may lose
CASES = {case.id: case for case in transformer_cases(0, True)}


@pytest.mark.derives("oracle.2")
@given(terms=st.lists(st.floats(-10, 10), min_size=1, max_size=5))
def test_sum_bounds_the_roundings_of_its_average_order(terms):
    """Squares of the bounds u |term| and u |partial sum|, averaged over all orders, stay below the formula."""
    terms = np.array(terms)
    average = np.mean([(np.cumsum(order)[1:]**2).sum() for order in permutations(terms)]) + (terms**2).sum()
    formula = analysis.sum_error(len(terms), terms.sum(), (terms**2).sum(), 1.0)
    assert average <= formula * (1 + 1e-9) + 1e-300
    assert formula <= (len(terms) + 2) * ((terms**2).sum() + terms.sum()**2) / 2 + 1e-300        # and is no larger than this


@dataclass(frozen=True)
class Stochastic:
    """Rounding by independent uniform relative errors in [-u, u]."""

    rng: np.random.Generator
    unit: float = 2.0**-30
    tiny: float = 0.0
    operand: float = 0.0
    bits: int = 53

    def round(self, x):
        return x * (1 + self.unit * self.rng.uniform(-1, 1, np.shape(x)))

    def round_operand(self, x):
        return x


def scatter(case, plain, replicas=120):
    """Standard deviation of (loss, dv, dW) under stochastic rounding, in units of the root-sum-square of the analysis."""
    p = Precision("stochastic", 2.0**-30, 0.0, 0.0, 53, -1022, 1e300, "float64")
    bounds = rounding_errors(**case.inputs, p=p)[0]
    arithmetic = Arithmetic(Stochastic(np.random.default_rng(7)), plain.arithmetic.sums)
    runs = [replace(plain, arithmetic=arithmetic)(**case.inputs) for _ in range(replicas)]
    out = {}
    for k, name in enumerate(("loss", "dv", "dW")):
        rss = bounds[name] / LAMBDA / analysis.repeats(_tokens(case))
        out[name] = np.std([run[k] for run in runs], axis=0) / rss
    return out


def _tokens(case):
    X, P = case.inputs["X"], case.inputs["P"]
    return np.concatenate([X, np.broadcast_to(P, (len(X), *P.shape))], axis=2)


@pytest.mark.derives("oracle.7", "oracle.8")
@pytest.mark.parametrize("id", ["generic-3-5-4", "large-W", "margin-12-right", "gap-8"])
@pytest.mark.parametrize("plain", [Plain(Arithmetic(sums="forward")),
                                   Plain(Arithmetic(sums="backward"), keys_first=True, backward=True, flat=True)],
                         ids=["forward", "flat"])
def test_stochastic_rounding_scatters_within_the_analysis_and_not_far_below(id, plain):
    """Uniform errors in [-u, u] have deviation u / sqrt 3: a perfect analysis would give 0.58 in every entry."""
    for name, ratio in scatter(CASES[id], plain).items():
        assert ratio.max() < 0.7, name                          # 0.58 and a fifth for what is counted together
        assert np.median(ratio) > 0.1, name                     # at most six times too large in the middle


@pytest.mark.derives("oracle.3")
@pytest.mark.parametrize("dtype", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("keys_first", [False, True])
def test_score_error(dtype, keys_first):
    p = PRECISIONS[dtype]
    ratios = []
    for seed in range(20):
        case = inputs(Draw(seed, "scores"), 3, 5, 4, w=0.5)
        W, Z = p.round_input(case["W"]), p.round_input(_tokens(type("C", (), {"inputs": case})))
        exact = Z @ W @ Z.transpose(0, 2, 1)
        got = Plain(Arithmetic(p, "forward"), keys_first).scores(W, Z)
        ratios.append(np.abs(got - exact) / np.sqrt(analysis.score_error(Z, W, p)))
    assert np.max(ratios) < LAMBDA * 0.7 and np.sqrt(np.mean(np.square(ratios))) > 0.15


@pytest.mark.derives("oracle.4")
@given(seed=st.integers(0, 10**6), size=st.floats(1e-9, 3.0), spread=st.floats(0, 30))
def test_a_moved_score_moves_an_average_by_no_more_than_stated(seed, size, spread):
    rng = np.random.default_rng(seed)
    A, a, x = spread * rng.standard_normal(5), size * rng.uniform(-1, 1, 5), rng.standard_normal(5)

    def average(A):
        E = np.exp(A - A.max())
        return E @ x / E.sum(), E / E.sum()
    xbar, S = average(A)
    moved = average(A + a)[0] - xbar
    identity = (S * np.expm1(a) * (x - xbar)).sum() / (S * np.exp(a)).sum()
    assert moved == pytest.approx(identity, rel=1e-6, abs=1e-13)
    p = replace(PRECISIONS["float64"], tiny=0.0)
    g, _ = analysis.attention_error(A[None, :, None], S[None, :, None], (np.abs(a)[None, :, None] / LAMBDA)**2, p)
    assert abs(moved) <= LAMBDA * (g[0, :, 0] * np.abs(x - xbar)).sum() * (1 + 1e-9) + 1e-13


@pytest.mark.derives("oracle.5")
@given(t=st.floats(-900, 900), error=st.floats(1e-12, 20.0))
@example(t=-36.0, error=9.0)                                  # 1 - s(-t) loses its digits
def test_a_moved_margin_moves_loss_and_factor_by_no_more_than_stated(t, error):
    t = np.array([t])
    V_l, V_s = analysis.loss_error(t, np.array([(error / LAMBDA)**2]), PRECISIONS["float64"])
    for side in (-error, error):
        moved = t + side
        assert abs(logistic_loss(moved) - logistic_loss(t)) <= LAMBDA * np.sqrt(V_l) * (1 + 1e-9) + ROUNDED * (1 + abs(t))
        assert abs(logistic_factor(moved) - logistic_factor(t)) <= LAMBDA * np.sqrt(V_s) * (1 + 1e-9) + ROUNDED * (1 + abs(t))


@pytest.mark.derives("oracle.6")
def test_repeats_counts_equal_tokens_and_samples():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((3, 5, 2))
    assert analysis.repeats(Z) == 1
    Z[1, 3] = Z[1, 0]
    assert analysis.repeats(Z) == 2
    assert analysis.repeats(np.concatenate([Z, Z])) == 2 * math.sqrt(2)


def test_equal_tokens_need_the_repeats():
    """Equal roundings add up: without the factor a right candidate would come out close to, or beyond, its tolerance."""
    case = CASES["equal-tokens"]
    worst = 0.0
    for dtype, p in PRECISIONS.items():
        ins = case.on_grid(p)
        allowed = tolerances(**ins, p=p)[0]["dW"]
        for candidate in right_candidates(dtype).values():
            worst = max(worst, (np.abs(candidate(**ins)[2]) / allowed).max())
    assert 0.05 < worst < 0.5


def share_of_tolerance(dtype, seed=0, ids=None, candidates=None):
    """Largest error over tolerance of right candidates, one number a case and block that the case can show."""
    p, shares = PRECISIONS[dtype], []
    candidates = candidates or right_candidates(dtype)
    cases = [case for case in TRANSFORMER.cases(seed, False) if ids is None or case.id in ids]
    for task in prepare(cases, p, TRANSFORMER):
        if task.skip:
            continue
        worst = {}
        for name, candidate in candidates.items():
            found, _ = judge(task, call(candidate, task.inputs, TRANSFORMER, p, times=1), TRANSFORMER, p)
            for c in found:
                assert c.verdict == PASS, (dtype, seed, name, c)
                if c.seen:
                    worst[c.block] = max(worst.get(c.block, 0.0), c.absolute / c.tolerance)
        shares += worst.values()
    return np.array(shares)


@pytest.mark.derives("oracle.9")
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_right_candidates_pass_and_the_tolerance_is_a_small_multiple_of_their_error(dtype):
    """Five orders of operation; in the middle of all cases and blocks their largest error is above a twelfth of the
    tolerance, and in the worst below 0.8 of it."""
    shares = share_of_tolerance(dtype)
    assert len(shares) > 100
    assert shares.max() < 0.8 and np.median(shares) > 1 / 12


@pytest.mark.slow
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_right_candidates_pass_a_thousand_times(dtype):
    """1,000 whole checks in a row in each precision: 200 seeds, five orders of operation each."""
    for seed in range(1000, 1200):
        share_of_tolerance(dtype, seed)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), w=st.floats(1e-3, 2), value=st.floats(1e-3, 50), n=st.integers(1, 5), D=st.integers(1, 6),
       d=st.integers(1, 5))
def test_the_closed_form_passes_on_any_input(seed, w, value, n, D, d):
    ins = inputs(Draw(seed, "any"), n, D, d, w, value)
    right = TRANSFORMER.evaluate(**ins)
    for careful in (False, True):
        allowed, _ = tolerances(**ins, careful=careful)
        for name, got in zip(("loss", "dv", "dW"), loss_and_gradient(**ins)):
            assert (np.abs(got - right[name]) <= allowed[name]).all(), (name, careful)


def test_careful_holds_what_plain_forgives():
    """With one dominant score the plain form of dW is lost and forgiven; the careful tolerance fails it."""
    case = CASES["gap-37"]
    right = TRANSFORMER.evaluate(**case.inputs)["dW"]
    plain = Plain()(**case.inputs)[2]
    careful = loss_and_gradient(**case.inputs)[2]
    forgiving, strict = (tolerances(**case.inputs, careful=k)[0]["dW"] for k in (False, True))
    assert (np.abs(plain - right) <= forgiving).all() and (np.abs(plain - right) > strict).any()
    assert (np.abs(careful - right) <= strict).all()
    assert np.abs(right).max() > 1e6 * strict.max()


@pytest.mark.parametrize("scale", [1.0, 16.0, 1e-6])
def test_the_reference_rounded_to_bfloat16_passes_at_any_scale(scale):
    p = PRECISIONS["bfloat16"]
    ins = {**CASES["small-scores"].inputs, "v": scale * CASES["small-scores"].inputs["v"]}
    ins = {name: p.round_input(x) for name, x in ins.items()}
    right = TRANSFORMER.evaluate(**ins)
    allowed, _ = tolerances(**ins, p=p)
    for name in ("loss", "dv", "dW"):
        rounded = p.round(right[name])
        assert (np.abs(rounded - right[name]) <= allowed[name]).all()
        assert (allowed[name] >= p.unit * np.abs(right[name])).all()           # never below half a unit in the last place
        assert (np.abs(1.5 * right[name] - right[name]) > allowed[name]).any()  # and the wrong ones fail at the same scale
