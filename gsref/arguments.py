"""Is this argument usable?  One place for the checks and for their wording.

Every message says which argument, what it got, and what is allowed.
Nothing here changes its input; arrays come back as float64 (a copy only when a conversion needs one).
"""

import math
import numbers
import operator

import numpy as np


def integer(name, value, least=1, most=None):
    """`value` as an int in [least, most]; TypeError for a non-integer, ValueError outside the range."""
    allowed = f"an integer >= {least}" if most is None else f"an integer from {least} to {most}"
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: got {value!r}, expected {allowed}") from None
    if number < least or (most is not None and number > most):
        raise ValueError(f"{name}: got {number}, expected {allowed}")
    return number


def real(name, value, least=-math.inf, most=math.inf, open_least=False):
    """`value` as a finite float in [least, most] (`open_least`: above `least`)."""
    if type(value) is not float and (isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real)):
        raise TypeError(f"{name}: got {value!r}, expected a real number")
    try:
        number = float(value)
    except OverflowError:                              # an int or a fraction beyond float64
        number = math.inf if value > 0 else -math.inf
    low = math.isfinite(number) and (number > least if open_least else number >= least)
    if not low or number > most:
        bounds = [f"{'>' if open_least else '>='} {least:g}"] if least > -math.inf else []
        bounds += [f"<= {most:g}"] if most < math.inf else []
        raise ValueError(" ".join([f"{name}: got {number!r}, expected a finite number", " and ".join(bounds)]).rstrip())
    return number


def choice(name, value, allowed):
    """`value` if it is one of `allowed` (a sequence of strings), else ValueError."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(allowed)}")
    return value


def real_array(name, value, shape):
    """`value` as a finite float64 array, `shape` as in `shaped`.

    TypeError for complex, object, string, boolean or masked arrays; ValueError for a wrong shape, an empty axis, NaN or
    inf.
    """
    array = shaped(name, value, shape)
    with np.errstate(over="ignore"):                   # a wider float beyond float64 becomes inf: refused below
        array = np.asarray(array, dtype=np.float64)
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name}: got {array[where]} at index {where}, expected finite numbers")
    return array


def shaped(name, value, shape):
    """`value` as an array of real numbers, neither converted nor searched for NaN.

    `shape` is a tuple of ints (that length) and strings (any length >= 1, the string is its name in messages).
    """
    if isinstance(value, np.ma.MaskedArray):           # asarray would drop the mask and use what it hides
        raise TypeError(f"{name}: got a masked array, expected an ordinary array")
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name}: got a ragged sequence, expected shape {_shape_text(shape)}") from None
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name}: got dtype {array.dtype}, expected real numbers")
    fits = array.ndim == len(shape) and all(
        size == want if isinstance(want, int) else size >= 1 for size, want in zip(array.shape, shape))
    if not fits:
        empty = " (an empty axis)" if 0 in array.shape else ""
        raise ValueError(f"{name}: got shape {array.shape}{empty}, expected {_shape_text(shape)}")
    return array


def finite(name, array, before=0):
    """A computed `array` if it is finite, else OverflowError: the arguments were finite, their products are not.

    `before`: the first axis is the end of a longer one, with that many entries before.
    """
    bad = ~np.isfinite(array)
    if bad.any():
        first, *rest = (int(i) for i in np.argwhere(bad)[0])
        where = (before + first, *rest)
        raise OverflowError(f"{name}: overflow at index {where}, expected arguments whose products stay below "
                            f"{np.finfo(array.dtype).max:.2g}")
    return array


def labels(name, value, n):
    """`value` as a float64 array of shape (n,) whose entries are -1 or +1."""
    y = real_array(name, value, (n,))
    wrong = np.abs(y) != 1.0
    if wrong.any():
        where = int(np.argmax(wrong))
        raise ValueError(f"{name}: got {y[where]:.17g} at index {where}, expected labels -1 or +1")
    return y


def instance(name, value, kind):
    """`value` if it is an instance of `kind`, else TypeError."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: got {type(value).__name__}, expected {kind.__name__}")
    return value


def _shape_text(shape):
    inner = ", ".join(str(size) for size in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
