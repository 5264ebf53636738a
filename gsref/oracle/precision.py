"""What is the arithmetic of a working precision?  Unit roundoff, range, and rounding to its grid.

All emulated arithmetic lives in float64 arrays whose values are on the grid of the type.  Every product, sum and
quotient of two numbers with at most 24 significant bits, rounded to float64 and then to the type, equals the one
rounding of the exact result (53 >= 2 * 24 + 2), so the emulation is exact.
"""

from dataclasses import dataclass

import numpy as np

from gsref.arguments import choice


@dataclass(frozen=True)
class Precision:
    """One working precision.

    `unit` is the unit roundoff of elementwise operations and of sums; `operand` that of the operands of a matrix
    product where they are rounded once more (tf32), else 0; `tiny` the absolute error of one underflow (the smallest
    normal number where hardware may flush to zero, half the smallest subnormal of float16, which no hardware flushes);
    `bits` and `least` the significand bits and the exponent of the smallest normal number; `largest` the largest
    finite number; `container` the NumPy type in which a candidate gets its inputs (NumPy has no bfloat16 and no
    tf32: float32 arrays carry them, with values on the coarser grid).
    """

    name: str
    unit: float
    operand: float
    tiny: float
    bits: int
    least: int
    largest: float
    container: str

    def round(self, x):
        """x rounded to nearest, ties to even, overflow to inf; a new float64 array (an operand's grid is coarser)."""
        return _to_grid(x, self.bits, self.least, self.largest)

    def round_operand(self, x):
        """x as the operand of a matrix product: rounded to 11 bits in tf32, as it is elsewhere."""
        return _to_grid(x, 11, -126, self.largest) if self.operand else np.asarray(x, dtype=np.float64)

    def round_input(self, x):
        """x on the grid of the inputs, so that no type has to round what it is given."""
        return self.round_operand(self.round(x))


def _to_grid(x, bits, least, largest):
    x = np.asarray(x, dtype=np.float64)
    if bits == 53:
        return x
    exponent = np.frexp(x)[1]                                     # |x| in [2^(e-1), 2^e)
    quantum = np.maximum(exponent, least + 1) - bits              # below 2^least the grid stops getting finer
    with np.errstate(over="ignore"):                              # near the end of float64 the result is inf, as it should be
        rounded = np.ldexp(np.rint(np.ldexp(x, -quantum)), quantum)
    return np.where(np.abs(rounded) > largest, np.copysign(np.inf, x), rounded)


FLOAT32_MAX = float(np.finfo(np.float32).max)
PRECISIONS = {p.name: p for p in (
    Precision("float64", 2.0**-53, 0.0, 2.0**-1022, 53, -1022, float(np.finfo(np.float64).max), "float64"),
    Precision("float32", 2.0**-24, 0.0, 2.0**-126, 24, -126, FLOAT32_MAX, "float32"),
    Precision("tf32", 2.0**-24, 2.0**-11, 2.0**-126, 24, -126, FLOAT32_MAX, "float32"),
    Precision("float16", 2.0**-11, 0.0, 2.0**-25, 11, -14, 65504.0, "float16"),
    Precision("bfloat16", 2.0**-8, 0.0, 2.0**-126, 8, -126, (2.0 - 2.0**-7) * 2.0**127, "float32"),
)}


def precision(dtype):
    """The Precision named `dtype`; ValueError with the allowed names otherwise."""
    return PRECISIONS[choice("dtype", dtype, tuple(PRECISIONS))]
