"""What does it look like?  Rows to pictures; the only module of the first system that imports matplotlib.

No pyplot and no global state: every picture is a `Figure` made under `STYLE`.  `save` writes it as PNG and SVG with the
numbers it was drawn from beside it as JSON.
"""

import io
from itertools import cycle

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gsref.files import write_atomic, write_text
from gsref.late_phase import late_alpha, late_leak, late_loss, late_time
from gsref.report import to_json

# Okabe and Ito's palette: tells eight things apart for colour-blind readers, and most of them in grey
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE = {"font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9, "legend.fontsize": 8, "axes.spines.top": False,
         "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "lines.linewidth": 1.5,
         "lines.markersize": 4, "legend.frameon": False, "svg.hashsalt": "gsref", "figure.dpi": 150}


def figure(rows=1, columns=1, width=6.4, height=3.6, **options):
    """(figure, axes) in the common style; axes as from Figure.subplots.  Draw inside `matplotlib.rc_context(STYLE)`."""
    picture = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(picture)
    return picture, picture.subplots(rows, columns, **options)


def style(**changes):
    """The common style as a context, for modules that draw without importing matplotlib."""
    return matplotlib.rc_context({**STYLE, **changes})


def save(picture, folder, name, data):
    """Write folder/name.png, .svg and .json (`data`: the numbers drawn, and a caption), each atomically."""
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        buffer = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            picture.savefig(buffer, format=kind, metadata=metadata)
        write_atomic(folder / f"{name}.{kind}", lambda file: file.write(buffer.getvalue()))
    write_text(folder / f"{name}.json", to_json(data))


def sizes(runs):
    """A colour for each run, by its D: dark for small, light for large."""
    D = sorted({run.problem.D for run in runs})
    shades = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, len(D)))
    return {run.problem.D: matplotlib.colors.to_hex(shades[D.index(run.problem.D)]) for run in runs}


def thin(run, rows=400):
    """Indices of at most about `rows` rows, evenly spread in log step, the start left out (log axes)."""
    step = run.trajectory.step
    wanted = np.geomspace(1, max(step[-1], 2), rows)
    return np.unique(np.clip(np.searchsorted(step, wanted), 1, len(step) - 1)) if len(step) > 1 else np.array([0])


def _log_scales(ax, names="xy"):
    """Log scales on the axes `names` that have a positive number to show (matplotlib warns of one without)."""
    for name in names:
        k = "xy".index(name)                   # the x of an axhline is no datum
        data = [line.get_data()[k] for line in ax.lines
                if line.get_transform().contains_branch_seperately(ax.transData)[k]]
        if any(np.any(np.asarray(values, dtype=float) > 0) for values in data):
            ax.set(**{f"{name}scale": "log"})


def loss_against_steps(runs):
    """Loss, its late law, and the claimed 1/D^2 of each size."""
    data = {"caption": "Population loss against gradient-descent steps; dashed: the late law 0.656/(sigma D alpha(t)); "
                       "dotted: the claimed upper bound 1/D^2 of the loss at T*.", "runs": []}
    colour = sizes(runs)
    with matplotlib.rc_context(STYLE):
        picture, axes = figure()
        for run in runs:
            i, path = thin(run), run.trajectory
            law = late_loss(run.problem, late_alpha(run.problem, run.eta, path.step[i]))
            axes.plot(path.step[i], path.loss[i], color=colour[run.problem.D], label=f"D = {run.problem.D}")
            late = law < np.log(2)
            axes.plot(path.step[i][late], law[late], "--", color=colour[run.problem.D], linewidth=0.9)
            axes.axhline(run.target, linestyle=":", color=colour[run.problem.D], linewidth=0.9)
            data["runs"].append({"D": run.problem.D, "step": path.step[i], "loss": path.loss[i], "loss_error":
                                 path.error[i, 0], "late_law": law, "claimed_bound": run.target})
        _log_scales(axes)
        axes.set(xlabel="gradient-descent step t", ylabel="population loss L (nats)",
                 title=_title(runs))
        axes.plot([], [], "--", color="grey", label="late law")
        axes.plot([], [], ":", color="grey", label="claimed $1/D^2$")
        axes.legend(ncols=1 + len(runs) // 8, loc="lower left")
    return picture, data


def leak_against_steps(runs, laws):
    """1 - S, mean over inputs and queries, and the 99 % quantile over inputs of the worst query (1 % of S)."""
    data = {"caption": "Attention that is not on the relevant group: mean 1 - S (solid), and the value that the worst "
                       "query of 99 % of the inputs does not exceed (dashed); dotted: the late law of position-only "
                       "attention, 2 x (D - 1)/(kappa^2 alpha^2), at the same alpha.", "runs": []}
    colour = sizes(runs)
    with matplotlib.rc_context(STYLE):
        picture, axes = figure()
        for run, (rows, worst) in zip(runs, laws):
            i, path, keep = thin(run), run.trajectory, rows > 0
            axes.plot(path.step[i], path.leak[i], color=colour[run.problem.D], label=f"D = {run.problem.D}")
            axes.plot(path.step[rows][keep], worst[keep], "--", color=colour[run.problem.D], linewidth=0.9)
            late = i[(path.order[i, 0] > 0) & (path.loss[i] < 0.1)]
            law = late_leak(run.problem, path.order[late, 0])
            axes.plot(path.step[late], law, ":", color=colour[run.problem.D], linewidth=0.9)
            data["runs"].append({"D": run.problem.D, "step": path.step[i], "leak": path.leak[i],
                                 "law_step": path.step[late], "late_law": law, "quantile_step": path.step[rows], "worst_leak_99": worst})
        _log_scales(axes)
        axes.set(xlabel="gradient-descent step t", ylabel="attention off the relevant group, $1 - S$", title=_title(runs))
        axes.plot([], [], "-", color="grey", label="mean")
        axes.plot([], [], "--", color="grey", label="worst query, 99 % of inputs")
        axes.plot([], [], ":", color="grey", label="late law, position-only")
        axes.legend(ncols=1 + len(runs) // 8, loc="lower left")
    return picture, data


ORDER_LABELS = (r"$\alpha$  (1/feature unit)", r"$a$  (1/feature unit$^2$)", r"$b$  (1/feature unit$^2$)",
                r"$m_{rr}$", r"$m_{ro}$", r"$m_{oo}$")


def order_parameters(runs):
    """The six order parameters against steps."""
    data = {"caption": "The six order parameters along the population path.", "names":
            ["alpha", "a", "b", "m_rr", "m_ro", "m_oo"], "runs": []}
    colour = sizes(runs)
    with matplotlib.rc_context(STYLE):
        picture, axes = figure(2, 3, width=7.6, height=4.2, sharex=True)
        for run in runs:
            i, path = thin(run), run.trajectory
            for k, ax in enumerate(axes.flat):
                ax.plot(path.step[i], path.order[i, k], color=colour[run.problem.D], label=f"D = {run.problem.D}")
            data["runs"].append({"D": run.problem.D, "step": path.step[i], "order": path.order[i]})
        for ax, label in zip(axes.flat, ORDER_LABELS):
            _log_scales(ax, "x")
            ax.set(title=label)
        for ax in axes[1]:
            ax.set_xlabel("step t")
        _log_scales(axes[0, 0], "y")
        axes[0, 0].legend()
        picture.suptitle(_title(runs), fontsize=9)
    return picture, data


def attention_maps(run, laws):
    """Mean attention matrices at the start, at the transition and at the end; laws is a list of (row, mean matrix)."""
    data = {"caption": f"Mean attention S[i, j] of query j (columns) on key i (rows) at D = {run.problem.D}; the "
                       f"relevant group is number {run.problem.relevant}.", "D": run.problem.D, "maps": []}
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        picture, axes = figure(1, len(laws), width=7.6, height=2.9, sharey=True)
        for ax, name, (row, mean) in zip(axes, ("start", "transition", "end"), laws):
            image = ax.imshow(mean, vmin=0, vmax=1, cmap="cividis")
            step = int(run.trajectory.step[row])
            ax.set(title=f"{name}: t = {step:,}", xlabel="query j",
                   xticks=group_ticks(run.problem.D), yticks=group_ticks(run.problem.D))
            data["maps"].append({"stage": name, "step": step, "mean_attention": mean})
        axes[0].set_ylabel("key i")
        picture.colorbar(image, ax=list(axes), label="mean attention $S_{ij}$", shrink=0.9)
    return picture, data


def times_to_loss(runs, eps):
    """Steps until the loss is eps, against eps and against D, with local exponents beside the claimed ones."""
    eps = np.sort(np.asarray(eps, dtype=float))[::-1]
    colour, marker = sizes(runs), dict(zip(sorted({run.problem.D for run in runs}), cycle(MARKERS)))
    data = {"caption": "Steps until the loss is eps.  Left: against eps, one line a size; dashed: our late law "
                       "t = C^2/(3 eta sigma^2 D^2 eps^3).  Right: until the loss is 1/D^2, against D; the claimed "
                       "exponent is 3.  Numbers: local exponents between neighbouring points (left: the last pair).", "runs": []}
    with matplotlib.rc_context(STYLE):
        picture, (left, right) = figure(1, 2, width=7.6, height=3.5)
        for run in runs:
            D = run.problem.D
            rows = [(e, *run.time_to(e)) for e in eps if run.time_to(e)]
            if not rows:
                continue
            e, t, error = np.array(rows).T
            slope = f" ({np.log(t[-1] / t[-2]) / np.log(e[-1] / e[-2]):.2f})" if len(t) > 1 else ""
            left.errorbar(e, t, yerr=error, color=colour[D], marker=marker[D], label=f"D = {D}{slope}")
            left.plot(e, late_time(run.problem, run.eta, e), "--", color=colour[D], linewidth=0.8)
            data["runs"].append({"D": D, "eps": e, "t": t, "t_error": error, "late_law":
                                 late_time(run.problem, run.eta, e), "t_of_target": run.time_to(run.target)})
        if data["runs"]:                       # a log axis without a point cannot be drawn
            left.set(xscale="log", yscale="log")
            left.invert_xaxis()
            left.legend(ncols=1 + len(runs) // 7)
        left.set(xlabel=r"loss $\epsilon$ (nats)", ylabel="steps until the loss is "
                 r"$\epsilon$", title=r"claimed exponent for $\epsilon < 1/D^2$: $-3$")
        rows = sorted((run.problem.D, *run.time_to(run.target)) for run in runs if run.time_to(run.target))
        if rows:
            D, t, error = np.array(rows).T
            right.errorbar(D, t, yerr=error, color=PALETTE[0], marker="o", label="measured")
            right.plot(D, t[0] * (D / D[0]) ** 3, "--", color=PALETTE[1], label="claimed, $D^3$ through the first")
            for k in range(len(D) - 1):
                right.annotate(f"{np.log(t[k + 1] / t[k]) / np.log(D[k + 1] / D[k]):.2f}", (np.sqrt(D[k] * D[k + 1]),
                               np.sqrt(t[k] * t[k + 1])), textcoords="offset points", xytext=(-4, 6), ha="right", fontsize=8)
            right.set_xticks(D, [f"{x:.0f}" for x in D])
            right.minorticks_off()
            right.legend()
            data["target"] = {"D": D, "t": t, "t_error": error}
            right.set(xscale="log", yscale="log")
        right.set(xlabel="number of groups D", ylabel="steps until the loss is $1/D^2$",
                  title=f"eta = {runs[0].rate.text}, {runs[0].mode.replace('_', '-')} mode")
        if rows:
            right.set_xticks(D, [f"{x:.0f}" for x in D])
            right.minorticks_off()
    return picture, data


def group_ticks(D):
    """Every group, or every second, third ..., so that there are six at most."""
    return np.arange(0, D, -(-D // 6))


def _title(runs):
    problem = runs[0].problem
    features = f"d = {problem.d}, " if runs[0].mode == "full" else ""
    return f"{runs[0].mode.replace('_', '-')} mode, {features}$\\sigma$ = {problem.sigma:g}, $\\eta$ = {runs[0].rate.text}"


def phase_map(cells, laws, outcomes):
    """Outcomes over (D, eta), one panel a mode: colour and marker tell the path, a cross that a real run leaves it.

    `cells`: a list with attributes mode, D, eta, path, outcome, certain; `laws`: power laws with mode, name, D, low,
    high, factor, exponent, error; `outcomes`: their names in order.
    """
    modes = [mode for mode in ("position_only", "full") if any(cell.mode == mode for cell in cells)]
    data = {"caption": "Outcome of population gradient descent from zero.  Colour and marker: what the path does; "
                       "cross: rounding breaks the symmetry before that, and a float64 run of all parameters leaves the "
                       "path.  Lines: measured boundaries (bars: brackets) with their power laws in D.",
            "cells": cells, "laws": laws}
    look = {name: (PALETTE[(2, 0, 1, 4)[k]], MARKERS[k]) for k, name in enumerate(outcomes[:-1])}
    kinds = [("black", "-"), (PALETTE[3], "--"), (PALETTE[4], "-."), (PALETTE[5], ":")]
    lines = dict(zip(dict.fromkeys(law.name for law in laws), cycle(kinds)))
    with matplotlib.rc_context(STYLE):
        picture, axes = figure(1, len(modes), width=4.4 * len(modes), height=4.4, squeeze=False)
        for ax, mode in zip(axes[0], modes):
            mine = [cell for cell in cells if cell.mode == mode]
            for name, (colour, marker) in look.items():
                points = np.array([(c.D, c.eta) for c in mine if c.path == name]).reshape(-1, 2)
                ax.plot(*points.T, marker, color=colour, markersize=6, label=name)
            vague = np.array([(c.D, c.eta) for c in mine if not c.certain]).reshape(-1, 2)
            if len(vague):
                ax.plot(*vague.T, "o", color="white", markersize=3, markeredgecolor="black", markeredgewidth=0.5,
                        label="uncertain: expectation out of control")
            left = np.array([(c.D, c.eta) for c in mine if c.outcome == "leaves"]).reshape(-1, 2)
            ax.plot(*left.T, "x", color="black", markersize=4, markeredgewidth=1, label="leaves the manifold first")
            for law in (law for law in laws if law.mode == mode):
                shade, dash = lines[law.name]
                D, middle = np.array(law.D, dtype=float), np.sqrt(np.multiply(law.low, law.high))
                ax.errorbar(D, middle, yerr=[middle - law.low, law.high - middle], fmt="none", color=shade)
                if law.error > 1:              # tabled with its bound, but a line would say too much
                    continue
                ax.plot(D, law.factor * D**law.exponent, dash, color=shade, linewidth=1.2,
                        label=f"{law.name}: $D^{{{law.exponent:.2f} \\pm {law.error:.2f}}}$")
            sizes_shown = sorted({cell.D for cell in mine})
            ax.set(xscale="log", yscale="log", xlabel="number of groups D", ylabel=r"learning rate $\eta$",
                   title=f"{mode.replace('_', '-')} mode" + (f", d = {mine[0].d}" if mode == "full" else ""))
            ax.set_xticks(sizes_shown, [str(D) for D in sizes_shown])
            ax.minorticks_off()
            ax.legend(fontsize=6.5, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    return picture, data


def symmetry_breaking(runs):
    """Distance from the symmetric manifold in runs of all parameters, beside what the multipliers predict.

    runs: mappings with eta, measured (step, residual, size), predicted and law (step, residual), broken.
    """
    data = {"caption": "Distance of (v, W) from the symmetric manifold, as a share of |(v, W)|, in float64 runs of all "
                       "parameters on a sample closed under the symmetries (dots), and as predicted from the second "
                       "derivative of the same sample (solid) and of the population loss (dashed).", "runs": []}
    with matplotlib.rc_context(STYLE):
        picture, axes = figure()
        for run, colour in zip(runs, (PALETTE[1], PALETTE[0])):
            for name, mark, says in (("measured", ".", "float64 run"), ("predicted", "-", "predicted, its sample"),
                                     ("law", "--", "predicted, population")):
                one = run[name]
                share = one.residual[1:] / one.size[1:]
                shown = share < 10
                broken = f", broken at {run['broken']}" if name == "measured" and run["broken"] else ""
                axes.plot(one.step[1:][shown], share[shown], mark, color=colour,
                          label=f"eta = {run['eta']:.3g}: {says}{broken}")
                data["runs"].append({"eta": run["eta"], "what": name, "step": one.step, "share": [None, *share]})
        axes.set(yscale="log", xlabel="gradient-descent step t", ylabel="share off the symmetric manifold",
                 title="Rounding along the symmetric path, D = 8")
        axes.legend()
    return picture, data
