"""Is one block of one case right?  Entry by entry, and what is not a number, of another shape or of another type first."""

from dataclasses import dataclass

import numpy as np

from gsref.oracle.tolerance import RESOLVES

PASS, FAIL, INCONCLUSIVE = "pass", "fail", "inconclusive"


@dataclass(frozen=True)
class Comparison:
    """One block of one case.

    `reason` says in words why the verdict is what it is; `index` is the worst entry (the largest error in tolerances),
    with `got`, `wanted`, `absolute` and `relative` error, error in `ulps` of the working precision, `tolerance`; `source`
    says where the tolerance comes from; `failing` of `entries` fail.  `seen`: whether the case can show an error of this
    block at all, that is, whether some entry is larger than 4 tolerances.  `noise`: the largest difference between
    two calls.
    """

    case: str
    block: str
    verdict: str
    reason: str
    seen: bool = False
    index: tuple = None
    got: float = None
    wanted: float = None
    absolute: float = None
    relative: float = None
    ulps: float = None
    tolerance: float = None
    source: str = ""
    failing: int = 0
    entries: int = 0
    noise: float = 0.0


def as_numbers(x):
    """`x` as a float64 array, and None; or None, and what is wrong with it."""
    try:
        array = np.asarray(x)
    except Exception as problem:          # conversion is the candidate's code: it may raise anything
        return None, f"cannot be converted to an array ({type(problem).__name__}: {first_line(problem)})"
    if array.dtype.kind == "V" and array.dtype.name.startswith(("bfloat16", "float8")):
        array = array.astype(np.float32)                # what jax hands out in these types
    if array.dtype.kind != "f":
        return None, f"type: got {array.dtype}, wanted floating-point numbers"
    return array.astype(np.float64), None


def first_line(problem):
    text = str(problem).strip()
    return text.splitlines()[0] if text else "no message"


def compare(case, block, got, wanted, tolerance, precision, again=None, source=""):
    """`got` against `wanted`, all float64 arrays.  `again`: the same block from a second call.

    A case where the two calls differ by more than the tolerance is inconclusive, unless the error exceeds the
    tolerance and the difference together.
    """
    def failed(reason, **numbers):
        return Comparison(case, block, FAIL, reason, source=source, entries=wanted.size, **numbers)

    if got.shape != wanted.shape:
        return failed(f"shape: got {got.shape}, wanted {wanted.shape}")
    finite = np.isfinite(got)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        return failed(f"not finite: {got[where]}{_at(where)}, {_count(~finite)}", index=where, got=float(got[where]),
                      wanted=float(wanted[where]), tolerance=float(tolerance[where]), failing=int((~finite).sum()))
    noise = np.abs(again - got) if again is not None and again.shape == got.shape else np.zeros(got.shape)
    error = np.abs(got - wanted)
    known = np.isfinite(tolerance)
    with np.errstate(all="ignore"):
        units = np.where(error == 0, 0.0, np.where(known, error / tolerance, 0.0))          # error > 0 = tolerance: inf
        seen = bool((known & (np.abs(wanted) >= RESOLVES * tolerance) & (wanted != 0)).any())
    bad = units > 1
    where = tuple(int(i) for i in np.unravel_index(np.argmax(units), units.shape))
    noisy = noise > tolerance
    quantum = 2.0**(max(np.frexp(wanted[where])[1], precision.least + 1) - precision.bits)
    numbers = dict(seen=seen, index=where, got=float(got[where]), wanted=float(wanted[where]),
                   absolute=float(error[where]), relative=float(error[where] / abs(wanted[where])) if wanted[where] else None,
                   ulps=float(error[where] / quantum), tolerance=float(tolerance[where]), failing=int(bad.sum()),
                   noise=float(noise.max()))
    if (error > tolerance + noise).any() and bad.any():
        return failed(f"{_count(bad)} beyond the tolerance", **numbers)
    if noisy.any():
        reason = f"two calls differ by {noise.max():.3g}, more than the tolerance"
        return Comparison(case, block, INCONCLUSIVE, reason, source=source, entries=wanted.size, **numbers)
    reason = "within the tolerance" if seen else "within the tolerance, which hides any error here"
    return Comparison(case, block, PASS, reason, source=source, entries=wanted.size, **numbers)


def _at(where):
    return f" at index {where}" if where else ""


def _count(bad):
    return f"{int(bad.sum())} of {bad.size} {'entry' if bad.size == 1 else 'entries'}"
