"""What does transfer look like?  Results to pictures, in the style of `gsref.plots`."""

from itertools import cycle

import numpy as np

from gsref.plots import MARKERS, PALETTE, figure, group_ticks, style
from gsref.transfer.claims import SIZES, STATISTICS, check_bound, claimed_bound, eps_exponents, sampled_exponents
from gsref.transfer.experiments import FIRST

NAMES = {"pretrained": "pretrained $(v, W)$, SGD", "logistic_sgd": "logistic regression, SGD (best step)",
         "from_zero": "$(v, W)$ from zero, SGD (best step)", "max_likelihood": "logistic regression, max. likelihood"}
COLOUR = dict(zip(NAMES, PALETTE))
MARKER = dict(zip(NAMES, MARKERS))
BAND = (0.1, 0.9)                              # quantiles over seeds


def _band(axes, measured, which):
    """Accuracy, mean and 10-90 % band over seeds; returns the numbers drawn."""
    rows, mean, error = measured.curve(which)
    low, high = np.quantile(1 - rows, BAND, axis=0)
    name, seen = measured.method, measured.at >= FIRST
    axes.plot(measured.at[seen], (1 - mean)[seen], color=COLOUR[name], marker=MARKER[name], markersize=3, label=NAMES[name])
    axes.fill_between(measured.at[seen], low[seen], high[seen], color=COLOUR[name], alpha=0.18, linewidth=0)
    return {"method": name, "statistic": which, "n": measured.at, "accuracy": 1 - mean, "standard_error": error,
            "low": low, "high": high, "seeds": len(rows)}


def accuracy_against_samples(results):
    """Accuracy against samples of every method on the main task: average while learning, and of the last state."""
    data = {"caption": f"Accuracy against samples; mean and 10-90 % band over seeds; {results.main.text}.  Left: average "
                       "over the samples as they came, before each was learned from (one minus the average online error); "
                       "right: of the state after n samples, on the law itself.",
            "curves": []}
    with style():
        picture, (left, right) = figure(1, 2, width=7.6, height=3.9, sharey=True)
        for measured in results.cells[results.main].values():
            data["curves"] += [_band(axes, measured, which) for axes, which in ((left, "online"), (right, "last"))]
        left.set(xscale="log", xlabel="samples n", ylabel="accuracy", title="average over the first n samples (A6)",
                 ylim=(0.25, 1.01))
        right.set(xscale="log", xlabel="samples n", title="state after n samples")
        picture.suptitle(f"downstream task: {results.main.text}; bands: 10 to 90 % of the seeds", fontsize=9)
        picture.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return picture, data


def samples_needed(results):
    """Samples until an error is eps, against d + D, d D and 1/eps; numbers: local exponents.  Rows: the two errors."""
    eps, data = results.eps[-1], {"sizes": [], "eps": [], "not_reached": []}
    data["caption"] = (
        f"Samples until the average online error (above) and the test error of the state (below) is {eps:g}, against d + D "
        "and against d D over the grid of sizes, and until it is eps on the main task.  Bars: standard errors.  Lines join "
        "the sizes at which d and D grow together; numbers: local exponents; dashed: the claimed exponent 1; open symbols "
        "with arrows: not reached in the samples that were run.")
    with style():
        picture, grid = figure(2, 3, width=8.4, height=6.2, sharex="col")
        for row, which, name in zip(grid, STATISTICS, ("average online error", "test error of the state")):
            for axes, (label, size) in zip(row, SIZES.items()):
                _against_size(axes, results, which, size, label, data)
            _against_eps(row[2], results, which, data)
            row[0].set_ylabel(f"samples to {name} {eps:g}")
            row[2].set_ylabel(rf"samples to {name} $\epsilon$")
        here = f"d = {results.main.d}, D = {results.main.D}"
        for above, below, title, label in zip(*grid, ("all sizes", "all sizes", here), ("$d + D$", "$d D$", r"$1/\epsilon$")):
            above.set_title(title)
            below.set_xlabel(label)
        handles, labels = grid[0][0].get_legend_handles_labels()
        handles += [grid[0][0].plot([], [], "--", color="grey", linewidth=0.9)[0],
                    grid[0][0].plot([], [], MARKERS[2], color="grey", markerfacecolor="white")[0]]
        picture.legend(handles, [*labels, r"claimed exponent 1 (A6: $d + D$, A7: $d D$; both: $1/\epsilon$)",
                                 "open, arrow: not reached in the samples run"],
                       loc="outside lower center", ncols=2)
    return picture, data


CLAIMED_FOR = {"d + D": ("pretrained",), "d D": ("logistic_sgd", "max_likelihood"), "1/eps": tuple(NAMES)}


def _against_size(axes, results, which, size, label, data):
    for name in NAMES:
        cells, n, error = results.needed(results.sizes(), name, results.eps[-1], which)
        on = [k for k, cell in enumerate(cells) if cell in results.diagonal()]
        x = np.array([size(cell) for cell in cells])
        axes.errorbar(x, n, yerr=error, fmt=MARKER[name], color=COLOUR[name], label=NAMES[name])
        axes.plot(x[on], n[on], color=COLOUR[name], linewidth=1)
        if name in CLAIMED_FOR[label] and len(on) > 1:
            _exponents(axes, sampled_exponents(x[on], n[on], error[on]), x[on], n[on], COLOUR[name])
        missed = [cell for cell in results.sizes() if name in results.cells[cell] and cell not in cells]
        for cell in missed:
            _not_reached(axes, size(cell), results.cells[cell][name])
        if label == "d D":
            data["sizes"] += [{"method": name, "d": cell.d, "D": cell.D, "statistic": which, "n": k, "error": e}
                              for cell, k, e in zip(cells, n, error)]
            data["not_reached"] += [{"method": name, "d": cell.d, "D": cell.D, "statistic": which, "eps": results.eps[-1],
                                     "n_at_least": results.cells[cell][name].at[-1]} for cell in missed]
    _log_ticks(axes, sorted({size(cell) for cell in results.sizes()}))


def _against_eps(axes, results, which, data):
    for name, measured in results.cells[results.main].items():
        reached = [e for e in results.eps if measured.needed(e, which)]
        rows = [(1 / e, *measured.needed(e, which)) for e in reached]
        for e in set(results.eps) - set(reached):
            _not_reached(axes, 1 / e, measured)
        if rows:
            x, n, error = np.array(rows).T
            axes.errorbar(x, n, yerr=error, fmt=MARKER[name] + "-", color=COLOUR[name], linewidth=1)
            data["eps"].append({"method": name, "statistic": which, "inverse_eps": x, "n": n, "error": error})
        if len(rows) > 1:
            _exponents(axes, eps_exponents(measured, results.eps, which), x, n, COLOUR[name])
    _log_ticks(axes, sorted(1 / e for e in results.eps))


def _not_reached(axes, x, measured):
    """An open symbol at the most samples that were run, with an arrow upwards."""
    axes.plot(x, 1.6 * measured.at[-1])                                 # nothing but room for the arrow
    axes.annotate("", (x, 1.5 * measured.at[-1]), (x, measured.at[-1]),
                  arrowprops={"arrowstyle": "->", "color": COLOUR[measured.method], "linewidth": 0.8})
    axes.plot(x, measured.at[-1], MARKER[measured.method], color=COLOUR[measured.method], markerfacecolor="white")


def _log_ticks(axes, x):
    """Log scales, with ticks at the values that occur, six at most."""
    ticks = [float(value) for value in x][::1 + len(x) // 7]
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    axes.tick_params(axis="y", which="minor", labelsize=6.5)


def _exponents(axes, exponents, x, n, colour):
    """Local exponents beside the lines between neighbours, and the claimed exponent 1 from the first point on."""
    for x_k, n_k, value, error in zip(exponents.x, np.sqrt(n[1:] * n[:-1]), exponents.value, exponents.error):
        axes.annotate(f"{value:.2f}" + (f" $\\pm$ {error:.2f}" if error >= 0.005 else ""), (x_k, n_k), fontsize=6.5, color=colour,
                      textcoords="offset points", xytext=(3, -9))
    axes.plot(x, n[0] * x / x[0], "--", color="grey", linewidth=0.9)


def margin_and_law(results):
    """Average online error of the pretrained model: each margin, and each law, on the main size."""
    main = results.main
    data = {"caption": f"Average online error of the pretrained model (lines) and of logistic regression by SGD (dotted), "
                       f"d = {main.d}, D = {main.D}.  Left: margins; right: laws of the coordinates.  Bands: two standard "
                       "errors of the mean over seeds.  Dashed: C (d + D) log^2(n)/(gamma^2 n), C fitted on the smaller sizes.",
            "curves": []}
    bound = check_bound(results).details.get("C")
    margins = sorted((cell for cell in results.cells if (cell.d, cell.D, cell.law) == (main.d, main.D, main.law)),
                     key=lambda cell: cell.margin)
    laws = [cell for cell in results.cells if (cell.d, cell.D, cell.margin) == (main.d, main.D, main.margin)]
    with style():
        picture, (left, right) = figure(1, 2, width=7.6, height=3.8, sharey=True)
        for axes, cells, label in ((left, margins, lambda cell: rf"$\gamma$ = {cell.margin:g}"),
                                   (right, laws, lambda cell: cell.law)):
            for cell, colour, marker in zip(cells, cycle(PALETTE), cycle(MARKERS)):
                for method, line in (("pretrained", "-"), ("logistic_sgd", ":")):
                    found = results.cells[cell][method]
                    _, mean, error = found.curve("online")
                    ours = method == "pretrained"
                    axes.plot(found.at, mean, line, color=colour, marker=marker if ours else None, markersize=3,
                              label=label(cell) if ours else None)
                    axes.fill_between(found.at, np.maximum(mean - 2 * error, mean / 10), mean + 2 * error, color=colour,
                                      alpha=0.18, linewidth=0)
                    data["curves"].append({"task": cell.text, "method": method, "n": found.at, "online_error": mean,
                                           "standard_error": error})
            axes.plot([], [], ":", color="grey", label="logistic regression, SGD")
            axes.set(xscale="log", yscale="log", xlabel="samples n")
            if bound and axes is right:
                n = results.cells[main]["pretrained"].at
                n = n[n >= (main.d + main.D) / main.margin**2]             # before, it is not judged: see check_bound
                data["claimed"] = {"C": bound, "n": n, "online_error": bound * claimed_bound(main, n)}
                axes.plot(n, data["claimed"]["online_error"], "--", color="grey", linewidth=0.9,
                          label=rf"claimed form, $C$ = {bound:.2g} (A6)")
            axes.legend(loc="lower left")
        left.set(ylabel="average online error", title=f"margins, {main.law} law")
        right.set_title(f"laws, margin {main.margin:g}")
        picture.suptitle(f"d = {main.d}, D = {main.D}; pretrained (symbols) beside logistic regression (dotted); bands: two "
                         "standard errors", fontsize=9)
    return picture, data


def attention_before_after(results):
    """1 - S on the relevant group before and after SGD downstream, at every size."""
    data = {"caption": "Attention that is not on the relevant group, mean over inputs, queries and seeds, before and after SGD "
                       f"downstream ({results.main.law} law, margin {results.main.margin:g}); from zero it starts at 1 - 1/D.",
            "rows": []}
    cells = results.sizes()
    with style():
        picture, axes = figure(width=6.8, height=3.6)
        for method, shift in (("pretrained", -0.12), ("from_zero", 0.12)):
            for k, cell in enumerate(cells):
                if method not in results.cells[cell]:
                    continue
                details = results.cells[cell][method].details
                before, after = details["attention_before"], details["attention_after"]
                colour, label = COLOUR[method], NAMES[method] if k == 0 else None
                axes.plot([k + shift] * 2, [1 - before[0], 1 - after[0]], color=colour, linewidth=0.8)
                axes.plot(k + shift, 1 - before[0], "o", color=colour, markersize=7, markerfacecolor="none",
                          label=f"{label}: before" if label else None)
                axes.plot(k + shift, 1 - after[0], "o", color=colour, label=f"{label}: after" if label else None)
                data["rows"].append({"task": cell.text, "method": method, "before": before, "after": after})
        if any(row[when][0] < 1 for row in data["rows"] for when in ("before", "after")):     # at D = 1 there is none off it
            axes.set(yscale="log")
        axes.set(ylabel="attention off the relevant group, $1 - S$",
                 xlabel="features a group d, groups D",
                 title=f"before and after learning downstream ({results.main.law}, margin {results.main.margin:g}); mean over "
                       "inputs, queries, seeds")
        axes.set_xticks(range(len(cells)), [f"{cell.d}, {cell.D}" for cell in cells])
        picture.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return picture, data


def patches(learned, transferred, pairs):
    """The patch experiment: learning which patch is the image, the mean attention, and the second pair of classes."""
    D = len(learned.map)
    data = {"caption": f"Images: {pairs[0].source}.  Left: full-batch gradient descent from zero on {pairs[0].classes[0]} "
                       f"and {pairs[0].classes[1]}, one image among {D} patches.  Middle: mean attention at the end.  "
                       f"Right: SGD on {pairs[1].classes[0]} and {pairs[1].classes[1]}, test error, mean and 10-90 % band.",
            "learning": {"step": learned.step, "loss": learned.loss, "test_error": learned.test_error,
                         "attention": learned.attention}, "map": learned.map, "curves": []}
    with style():
        picture, (left, middle, right) = figure(1, 3, width=9.0, height=3.4)
        for values, name, colour in ((learned.loss, "loss (nats)", PALETTE[0]), (learned.test_error, "test error", PALETTE[1]),
                                     (learned.attention, "attention on the image", PALETTE[2])):
            left.plot(learned.step, values, color=colour, label=name)
        left.axhline(1 / D, color=PALETTE[2], linewidth=0.8, linestyle=":", label="uniform attention")
        left.set(xlabel="gradient-descent step", ylim=(0, 1), title=" and ".join(pairs[0].classes))
        left.legend(loc="upper right", bbox_to_anchor=(1.0, 0.93))
        image = middle.imshow(learned.map, vmin=0, vmax=1, cmap="cividis")
        middle.grid(False)
        middle.set(xlabel="query j", ylabel="key i", title="mean attention at the end", xticks=group_ticks(D),
                   yticks=group_ticks(D))
        picture.colorbar(image, ax=middle, shrink=0.7, label="attention")
        for measured in transferred.values():
            drawn = _band(right, measured, "last")
            data["curves"].append(drawn)
        right.set(xscale="log", xlabel="samples n", ylabel="test accuracy", title=" and ".join(pairs[1].classes))
        right.margins(x=0.08)
        picture.legend(*right.get_legend_handles_labels(), loc="outside lower right", ncols=3)
        picture.suptitle(f"{pairs[0].source}; one image among {D} patches, group {int(np.argmax(learned.map.mean(axis=1)))} "
                         "attended most; bands: 10 to 90 % of the seeds", fontsize=8)
    return picture, data
