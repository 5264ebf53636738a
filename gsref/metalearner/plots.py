"""What do the metalearner's measurements look like?  Measurements (`experiments`) to pictures, in the common style.

Every function returns (picture, data), `data` holding the caption and the numbers drawn.
"""

import matplotlib
import numpy as np

from gsref.metalearner.experiments import ACCURACY
from gsref.metalearner.sample_size import needed_law
from gsref.plots import MARKERS, PALETTE, STYLE, figure

GREY = "#666666"


def _context_axis(ax, M):
    ax.set(xscale="log", xlabel="examples in the context M")
    names, last = [], np.inf
    for m in reversed(M):                      # no name where it would touch the next one's
        close = np.log(last / m) < 0.06 * np.log(M[-1] / M[0])
        names, last = ["" if close else f"{m:g}", *names], last if close else m
    ax.set_xticks(M, names, fontsize=7)
    ax.minorticks_off()


def accuracy_curves(figures, svms, sizes):
    """Figure 1: accuracy against M, one panel a radius; `figures` {R: measurement}, `svms` {R: measurement}."""
    data = {"caption": "Accuracy on a new task against the number of examples in its context. Points: W trained by "
                       f"gradient descent on {sizes.B} tasks (d = {sizes.d}, k = {sizes.k[0]}, N = {sizes.N}, rate "
                       f"{sizes.eta:g}, {sizes.steps} steps), and SVMs trained on the context; bars: 4 standard errors. "
                       "Lines: exact values of the projected MLE (optimal if the subspace is known; also the trained model "
                       "with infinitely many tasks) and of the full MLE (optimal if it is not).", "panels": []}
    with matplotlib.rc_context(STYLE):
        picture, axes = figure(1, len(figures), width=7.6, height=3.6, sharey=True, squeeze=False)
        for ax, (R, f) in zip(axes[0], figures.items()):
            ax.plot(f["M"], f["projected"], color=PALETTE[2], label="projected MLE = population limit")
            ax.errorbar(f["M"], f["trained"], 4 * f["trained_error"], color=PALETTE[0], marker=MARKERS[0],
                        label=f"trained, B = {sizes.B}")
            ax.plot(f["M"], f["full"], "--", color=PALETTE[1], label="full MLE")
            if R in svms:
                for key, label, colour, marker in (("svm_origin", "SVM through the origin", PALETTE[3], MARKERS[2]),
                                                   ("svm", "SVM with intercept", PALETTE[4], MARKERS[3])):
                    ax.errorbar(svms[R]["M"], svms[R][key], 4 * svms[R][f"{key}_error"], color=colour, marker=marker,
                                linewidth=0.8, label=label)
            _context_axis(ax, f["M"])
            ax.set_title(f"R = {R:g}, d = {sizes.d}, k = {sizes.k[0]}")
            data["panels"].append({"R": R, **f, "svm": svms.get(R, {})})
        axes[0, 0].set_ylabel("accuracy on a new query")
        picture.legend(*axes[0, -1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return picture, data


def accuracy_grid(figures, sizes):
    """Figure 2: one panel a radius, one colour a k; `figures` {(k, R): measurement}."""
    data = {"caption": "Accuracy against the number of examples in the context. Points: W trained by gradient descent "
                       f"(d = {sizes.d}, B = {sizes.B} tasks); bars: 4 standard errors. Dotted: projected MLE, the "
                       "population limit, exact. Dashed: full MLE, which needs no training, exact.", "panels": []}
    with matplotlib.rc_context(STYLE):
        picture, axes = figure(1, len(sizes.R), width=7.6, height=3.4, sharey=True, squeeze=False)
        for ax, R in zip(axes[0], sizes.R):
            for k, colour, marker in zip(sizes.k, PALETTE, MARKERS):
                f = figures[k, R]
                ax.errorbar(f["M"], f["trained"], 4 * f["trained_error"], color=colour, marker=marker, label=f"k = {k}")
                ax.plot(f["M"], f["projected"], ":", color=colour, linewidth=1.0)
                data["panels"].append({"k": k, "R": R, **f})
            ax.plot(f["M"], f["full"], "--", color=GREY)
            _context_axis(ax, f["M"])
            ax.tick_params(axis="x", rotation=60)
            ax.set_title(f"R = {R:g}, d = B = {sizes.d}" if sizes.d == sizes.B else f"R = {R:g}")
        axes[0, 0].set_ylabel("accuracy on a new query")
        ax = axes[0, -1]
        ax.plot([], [], ":", color=GREY, label="projected MLE")
        ax.plot([], [], "--", color=GREY, label="full MLE")
        ax.legend(loc="lower right")
    return picture, data


def direction_gap(every, some):
    """B1: distance of the direction of gradient descent from that of the maximal margin, against steps."""
    data = {"caption": "Distance between the directions of gradient descent and of the max-margin solution. Dashed: "
                       "the derived law, the gap of log(n) W_hat + W_off, without a fitted constant.",
            "every_task_on_the_support": every, "some_off": some}
    with matplotlib.rc_context(STYLE):
        picture, ax = figure(width=5.2, height=3.4)
        for run, colour, marker, label in ((every, PALETTE[0], MARKERS[0], "every task on the support"),
                                           (some, PALETTE[1], MARKERS[1], "some tasks off the support")):
            ax.plot(run["steps"], run["gap"], color=colour, marker=marker,
                    label=f"{label} ({int(run['support'])} of {int(run['tasks'])})")
        ax.plot(every["steps"][1:], every["predicted"][1:], "--", color=PALETTE[2], label="derived law")
        ax.set(xscale="log", yscale="log", xlabel="gradient-descent step n",
               ylabel=r"$\| W/\|W\| - \hat{W}/\|\hat{W}\| \|_F$")
        ax.legend()
    return picture, data


def examples_needed(grid):
    """B2 and B4: examples needed against k/R^4 and d/R^4, with the derived laws."""
    data = {"caption": f"Examples needed for accuracy {ACCURACY:g}, exact. Left: knowing the subspace (the trained "
                       "model with infinitely many tasks). Right: the best learner that sees the context alone. Dashed: "
                       "the derived law; grey: slope one, the claimed scaling. Open "
                       "points: below one example, out of the regime.",
            **grid}
    with matplotlib.rc_context(STYLE):
        picture, axes = figure(1, 2, width=7.6, height=3.5)
        for ax, needed, sizes, name, who in ((axes[0], grid["known"], grid["k"], "k", "knows the subspace"),
                                             (axes[1], grid["context_only"], grid["d"], "d", "sees the context alone")):
            for R, row, colour, marker in zip(grid["R"], needed, PALETTE, MARKERS):
                x, real = sizes / R ** 4, row >= 1.0
                ax.plot(x[real], row[real], marker, color=colour, label=f"R = {R:.3g}")
                ax.plot(x[~real], row[~real], marker, color=colour, markerfacecolor="none", markeredgewidth=0.7, markersize=5)
                ax.plot(x, needed_law(sizes, R, ACCURACY), "--", color=colour, linewidth=0.9)
            x = np.array([np.min(sizes / grid["R"].max() ** 4), np.max(sizes / grid["R"].min() ** 4)])
            ax.plot(x, 1.6424 * x, color=GREY, linewidth=0.8, label=f"$1.64\\,{name}/R^4$")
            ax.set(xscale="log", yscale="log", xlabel=f"${name}/R^4$", title=who,
                   ylabel=f"examples M for accuracy {ACCURACY:g}")
            ax.legend(loc="upper left")
    return picture, data


def tasks_needed(tasks):
    """B2 and B3: by how much the trained model exceeds the optimal number of examples, against the number of tasks."""
    data = {"caption": "Examples that the trained model needs beyond the optimum (projected MLE), as a share, against "
                       f"the number of training tasks (k = {int(tasks['k'])}, R = {float(tasks['R']):g}, N = "
                       f"{int(tasks['N'])}); bars: 4 standard errors; dashed: the derived law of one step, no constant "
                       "fitted.", **tasks}
    with matplotlib.rc_context(STYLE):
        picture, ax = figure(width=5.2, height=3.4)
        for dim, row, error, law, colour, marker in zip(tasks["d"], tasks["ratio"], tasks["ratio_error"], tasks["law"],
                                                        PALETTE, MARKERS):
            seen = row - 1.0 > 4.0 * error                       # bars on a log axis: only what is clear of zero
            ax.errorbar(tasks["B"][seen], row[seen] - 1.0, 4 * error[seen], color=colour, marker=marker, linestyle="none",
                        label=f"d = {dim}")
            ax.plot(tasks["B"], law, "--", color=colour, linewidth=0.9)
        ax.plot([], [], "--", color=GREY, label="derived law")
        _context_axis(ax, tasks["B"])
        ax.set(yscale="log", xlabel="training tasks B", ylabel=r"$M_{\rm trained}/M_{\rm optimal} - 1$")
        ax.legend()
    return picture, data


def training_loss(figures, sizes):
    """Training loss against steps beside the population loss; `figures` {R: measurement}."""
    data = {"caption": f"Mean logistic loss along training: on the {sizes.B} tasks (solid) and in the population "
                       "(dashed); dotted: the least population loss, at p* Pi.", "runs": []}
    with matplotlib.rc_context(STYLE):
        picture, ax = figure(width=5.2, height=3.4)
        for (R, f), colour in zip(figures.items(), PALETTE):
            n = np.arange(len(f["losses"]))
            ax.plot(n, f["losses"], color=colour, label=f"R = {R:g}")
            ax.plot(np.arange(len(f["population_loss"])), f["population_loss"], "--", color=colour)
            ax.axhline(float(f["limit"][2]), linestyle=":", color=colour)
            data["runs"].append({"R": R, "losses": f["losses"], "population_loss": f["population_loss"],
                                 "least_population_loss": f["limit"][2]})
        for style, label in (("-", f"{sizes.B} tasks"), ("--", "population"), (":", "least, population")):
            ax.plot([], [], style, color=GREY, label=label)
        ax.set(xlabel="gradient-descent step n", ylabel="logistic loss (nats)", yscale="log")
        ax.legend(ncols=2, loc="center left", bbox_to_anchor=(0.0, 0.3))
    return picture, data
