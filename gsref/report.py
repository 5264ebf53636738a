"""What does a run say?  Rows of claims, as text and as JSON.  (Pictures are in `plots`.)"""

import json
import math
import platform
import textwrap
from dataclasses import asdict, dataclass, field, is_dataclass

import numpy as np
import scipy

VERDICTS = ("holds", "fails", "undecided", "not in regime")


@dataclass(frozen=True)
class Check:
    """One claim against one measurement.

    `claimed` and `measured` are short statements (text or number), `error` the uncertainty of `measured` in words or
    as a number, `verdict` one of VERDICTS, `details` whatever numbers the verdict was drawn from.
    """

    id: str
    claim: str
    claimed: object
    measured: object
    error: object
    verdict: str
    details: dict = field(default_factory=dict)

    def __post_init__(self):
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict: got {self.verdict!r}, expected one of {', '.join(VERDICTS)}")


def versions():
    """Versions of what the numbers depend on."""
    return {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}


def jsonable(value):
    """`value` with NumPy types as plain ones, dataclasses as objects, and non-finite numbers as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return jsonable(asdict(value))
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return str(value)
    if value is None:
        return None
    raise TypeError(f"value: got {type(value).__name__}, expected something that JSON can hold")


def to_json(value):
    """Valid JSON text: no bare NaN, keys in the order given."""
    return json.dumps(jsonable(value), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def text_of(value):
    """A cell of a table: four significant digits for a float, `-` for nothing."""
    if isinstance(value, (float, np.floating)):
        return "-" if math.isnan(value) else f"{value:.4g}"
    return "-" if value is None else str(value)


def table(checks, width=118):
    """The checks as a text table: id, verdict, claimed, measured, error, cells wrapped to `width` columns."""
    head = ("id", "verdict", "claim", "claimed", "measured", "error")
    rows = [(c.id, c.verdict, c.claim, *map(text_of, (c.claimed, c.measured, c.error))) for c in checks]
    fixed = [max(len(row[k]) for row in [head, *rows]) for k in (0, 1)]
    free = width - sum(fixed) - 2 * 5
    share = [free * part // 100 for part in (28, 22, 30, 20)]
    columns = fixed + share

    def lines(row):
        cells = [textwrap.wrap(cell, size) or [""] for cell, size in zip(row, columns)]
        for k in range(max(map(len, cells))):
            line = ((cell[k] if k < len(cell) else "").ljust(size) for cell, size in zip(cells, columns))
            yield "  ".join(line).rstrip()

    rule = "  ".join("-" * size for size in columns)
    return "\n".join([*lines(head), rule, *(line for row in rows for line in lines(row))])
