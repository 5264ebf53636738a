"""How does the time of the gradient grow with n, D and d, and what would its products and exponentials alone take?"""

import numpy as np

from gsref.batched import ELEMENTS, loss_and_gradient
from gsref.bench.meters import best_time
from gsref.problem import positions
from gsref.scaling import local_exponents
from gsref.threads import SINGLE_BLAS

# what grows -> its values; the others stay at those of BASE
BASE = {"n": 256, "d": 16, "D": 16}
RANGES = {"n": [1, 4, 16, 64, 256, 1024, 4096, 16384], "d": [1, 2, 4, 8, 16, 32, 64, 128, 256],
          "D": [1, 2, 4, 8, 16, 32, 64, 128]}


def inputs(n, d, D, seed=0):
    """v, W, X, y, P of a shape, scores and values of size one."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D, d))
    return (rng.standard_normal(d + D) / np.sqrt(d + D), rng.standard_normal((d + D, d + D)) / (d + D), X,
            np.where(X[:, 0, 0] < 0, -1.0, 1.0), positions(D))


def growth(ranges=None, repeats=9):
    """Rows {along, x, seconds, exponents}: the time on one thread as one of n, d, D grows, and its local exponents."""
    rows = []
    for along, values in (RANGES if ranges is None else ranges).items():
        arrays = [inputs(**{**BASE, along: value}) for value in values]
        seconds = [best_time(lambda: loss_and_gradient(*a, threads=1), repeats) for a in arrays]
        rows.append({"along": along, "x": values, "seconds": seconds,
                     "exponents": local_exponents(values, seconds).value.tolist()})
    return rows


def floor(n, d, D, repeats=15):
    """Seconds of the six matrix products and the exponentials alone, on one thread, chunk by chunk.

    No sum, no comparison, no check, no transposed copy: less cannot be asked of NumPy.
    """
    m = min(n, max(1, ELEMENTS // max(D * D, D * d)))
    rng = np.random.default_rng(0)
    X, XT, L = rng.standard_normal((m, D, d)), rng.standard_normal((m, d, D)), np.empty((m, D, d))
    A, E, W11, K = np.empty((m, D, D)), np.empty((m, D, D)), rng.random((d, d)) / d ** 2, rng.random((d, D)) / d ** 2
    rows = X.reshape(m * D, d)

    def chunk():
        np.matmul(rows, W11, out=L.reshape(m * D, d))
        np.matmul(rows, K, out=E.reshape(m * D, D))
        np.matmul(L, XT, out=A)
        np.exp(A, out=E)
        np.matmul(E, X, out=L)
        L.reshape(m * D, d).T @ rows
        E.reshape(m * D, D).T @ rows
    with SINGLE_BLAS:
        return best_time(lambda: [chunk() for _ in range(-(-n // m))], repeats) * n / (m * -(-n // m))


def draw(compared, rows):
    """(picture, data): times beside the best peer, a shape each, and the growth with its local exponents."""
    from gsref import plots                    # here: the comparison alone need not wait for matplotlib

    with plots.style():
        picture, (left, right) = plots.figure(1, 2, width=9.2, height=3.8)
        names = [f"({n}, {d}, {D})" for n, d, D in (ratio["shape"] for ratio in compared)]
        kinds = [("to best", "best peer"), ("to autograd", "autograd"), ("floor", "products and exp alone, one thread")]
        for k, (key, label) in enumerate(kinds):
            values = [(at, ratio[key]) for at, ratio in enumerate(compared) if ratio[key] is not None]
            if values:
                left.plot(*zip(*values), plots.MARKERS[k], color=plots.PALETTE[k], markersize=6, label=label)
        left.axhline(1, color="black", linewidth=0.8)
        left.set(yscale="log", ylabel="time over that of loss_and_gradient", xlabel="(n, d, D)",
                 title="Above 1: slower than this package")
        left.set_xticks(range(len(names)), names, rotation=20, ha="right", fontsize=7)
        left.set_yticks([0.25, 0.5, 1, 2, 4, 8], ["1/4", "1/2", "1", "2", "4", "8"])
        left.minorticks_off()
        left.set_ylim(top=4 * left.get_ylim()[1])          # room for the legend
        left.legend(loc="upper left")
        for k, row in enumerate(rows):
            others = ", ".join(f"{name} = {value}" for name, value in BASE.items() if name != row["along"])
            right.plot(row["x"], 1e3 * np.array(row["seconds"]), plots.MARKERS[k] + "-", color=plots.PALETTE[k],
                       label=f"{row['along']} grows ({others})")
            for x, y, slope in zip(row["x"][1:], row["seconds"][1:], row["exponents"]):
                right.annotate(f"{slope:.1f}", (x, 1e3 * y), textcoords="offset points", xytext=(-3, (5, -10, 5)[k]),
                               ha="right" if k != 1 else "left", fontsize=6, color=plots.PALETTE[k])
        right.set(xscale="log", yscale="log", xlabel="n, d or D", ylabel="time on one thread [ms]",
                  title="Growth, with local exponents")
        right.legend()
    caption = ("Left: time of the best peer, of HIPS autograd, and of NumPy's matrix products and exponentials alone, "
               "over that of loss_and_gradient. Right: its time on one thread as n, d or D grows; the numbers are "
               "local exponents towards the point from the one before.")
    return picture, {"caption": caption, "ratios": compared, "growth": rows}
