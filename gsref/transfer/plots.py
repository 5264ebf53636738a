"""What does transfer look like?  Results to pictures, in the style of `gsref.plots`."""

from itertools import cycle

import numpy as np

from gsref.plots import MARKERS, PALETTE, figure, style

NAMES = {"pretrained": "pretrained $(v, W)$, SGD", "logistic_sgd": "logistic regression, SGD (best step)",
         "from_zero": "$(v, W)$ from zero, SGD (best step)", "max_likelihood": "logistic regression, max. likelihood"}
COLOUR = dict(zip(NAMES, PALETTE))
MARKER = dict(zip(NAMES, MARKERS))
BAND = (0.1, 0.9)                              # quantiles over seeds


def _band(axes, measured, which):
    """Accuracy, mean and 10-90 % band over seeds; returns the numbers drawn."""
    rows, mean, error = measured.curve(which)
    low, high = np.quantile(1 - rows, BAND, axis=0)
    name = measured.method
    axes.plot(measured.at, 1 - mean, color=COLOUR[name], marker=MARKER[name], markersize=3, label=NAMES[name])
    axes.fill_between(measured.at, low, high, color=COLOUR[name], alpha=0.18, linewidth=0)
    return {"method": name, "statistic": which, "n": measured.at, "accuracy": 1 - mean, "standard_error": error,
            "low": low, "high": high, "seeds": len(rows)}


def accuracy_against_samples(results):
    """Accuracy against samples of every method on the main task: average while learning, and of the last iterate."""
    data = {"caption": f"Accuracy against samples; mean and 10-90 % band over seeds; {results.main.text}.  Left: average "
                       "over the samples as they came; right: of the state after n samples, on fresh data.",
            "curves": []}
    with style():
        picture, (left, right) = figure(1, 2, width=7.6, height=3.6, sharey=True)
        for name, measured in results.cells[results.main].items():
            if name != "max_likelihood":
                data["curves"].append(_band(left, measured, "online"))
            data["curves"].append(_band(right, measured, "last"))
        left.set(xscale="log", xlabel="samples n", ylabel="accuracy", title="average while learning (A6)", ylim=(0.35, 1.01))
        right.set(xscale="log", xlabel="samples n", title="state after n samples")
        picture.suptitle(results.main.text, fontsize=9)
        right.legend(loc="lower right")
    return picture, data


def samples_needed(results):
    """Samples until the average online error is eps, against d + D, d D and 1/eps; numbers: local exponents."""
    eps = results.eps[-1]
    data = {"caption": f"Samples until the average online error is {eps:g} (maximum likelihood: until its test error is), "
                       "against d + D and against d D, over the grid of sizes; and against 1/eps on the main task.  "
                       "Lines join the sizes at which d and D grow together; dashed: the claimed exponent 1.",
            "sizes": [], "eps": []}
    diagonal = results.diagonal()
    with style():
        picture, (sums, products, inverse) = figure(1, 3, width=7.8, height=3.5)
        for name in NAMES:
            which = "last" if name == "max_likelihood" else "online"
            cells, n, error = results.needed(results.sizes(), name, eps, which)
            on = [k for k, cell in enumerate(cells) if cell in diagonal]
            for axes, size in ((sums, lambda cell: cell.d + cell.D), (products, lambda cell: cell.d * cell.D)):
                x = np.array([size(cell) for cell in cells])
                axes.errorbar(x, n, yerr=error, fmt=MARKER[name], color=COLOUR[name], label=NAMES[name])
                axes.plot(x[on], n[on], color=COLOUR[name], linewidth=1)
                _exponents(axes, x[on], n[on], COLOUR[name])
            data["sizes"] += [{"method": name, "d": cell.d, "D": cell.D, "statistic": which, "n": k, "error": e}
                              for cell, k, e in zip(cells, n, error)]
            measured = results.cells[results.main].get(name)
            rows = [(1 / e, *measured.needed(e, which)) for e in results.eps if measured and measured.needed(e, which)]
            if rows:
                x, n, error = np.array(rows).T
                inverse.errorbar(x, n, yerr=error, fmt=MARKER[name] + "-", color=COLOUR[name], linewidth=1)
                _exponents(inverse, x, n, COLOUR[name])
                data["eps"].append({"method": name, "statistic": which, "inverse_eps": x, "n": n, "error": error})
        for axes, label, name in ((sums, "$d + D$", "pretrained"), (products, "$d D$", "logistic_sgd"),
                                  (inverse, r"$1/\epsilon$", "pretrained")):
            axes.set(xscale="log", yscale="log", xlabel=label)
            ticks = sorted({float(x) for container in axes.containers for x in container[0].get_xdata()})
            axes.set_xticks(ticks[::1 + len(ticks) // 6], [f"{x:g}" for x in ticks[::1 + len(ticks) // 6]])
            axes.minorticks_off()
            _claimed(axes, COLOUR[name])
        sums.set_ylabel(f"samples to error {eps:g}")
        inverse.set_title(f"d = {results.main.d}, D = {results.main.D}")
        picture.legend(*sums.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return picture, data


def _exponents(axes, x, y, colour):
    """Local exponents beside the lines between neighbours."""
    for k in range(len(x) - 1):
        slope = np.log(y[k + 1] / y[k]) / np.log(x[k + 1] / x[k])
        axes.annotate(f"{slope:.2f}", (np.sqrt(x[k] * x[k + 1]), np.sqrt(y[k] * y[k + 1])), fontsize=7, color=colour,
                      textcoords="offset points", xytext=(3, -9))


def _claimed(axes, colour):
    """A dashed line of slope 1 through the first point of the line of this colour."""
    for line in axes.lines:
        x, y = (np.asarray(part, dtype=float) for part in line.get_data())
        if line.get_color() == colour and len(x) > 1:
            axes.plot(x, y[0] * x / x[0], "--", color="grey", linewidth=0.9)
            return


def margin_and_law(results):
    """Average online error of the pretrained model: each margin, and each law, on the main size."""
    main = results.main
    data = {"caption": f"Average online error of the pretrained model (lines) and of logistic regression by SGD (dotted), "
                       f"d = {main.d}, D = {main.D}.  Left: margins; right: laws of the coordinates.  Bands: two standard "
                       "errors of the mean over seeds.", "curves": []}
    margins = sorted((cell for cell in results.cells if (cell.d, cell.D, cell.law) == (main.d, main.D, main.law)),
                     key=lambda cell: cell.margin)
    laws = [cell for cell in results.cells if (cell.d, cell.D, cell.margin) == (main.d, main.D, main.margin)]
    with style():
        picture, (left, right) = figure(1, 2, width=7.6, height=3.4, sharey=True)
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
            axes.legend(loc="lower left")
        left.set(ylabel="average online error", title=f"margins, {main.law} law")
        right.set_title(f"laws, margin {main.margin:g}")
    return picture, data


def attention_before_after(results):
    """1 - S on the relevant group before and after SGD downstream, at every size."""
    data = {"caption": "Attention that is not on the relevant group, mean over inputs and queries, before and after SGD "
                       "downstream; from zero it starts at 1 - 1/D.", "rows": []}
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
        axes.set(yscale="log", ylabel="attention off the relevant group, $1 - S$", xlabel="d, D",
                 title="before and after learning the downstream task")
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
        picture, (left, middle, right) = figure(1, 3, width=8.4, height=3.4)
        for values, name, colour in ((learned.loss, "loss (nats)", PALETTE[0]), (learned.test_error, "test error", PALETTE[1]),
                                     (learned.attention, "attention on the image", PALETTE[2])):
            left.plot(learned.step, values, color=colour, label=name)
        left.axhline(1 / D, color=PALETTE[2], linewidth=0.8, linestyle=":", label="uniform attention")
        left.set(xlabel="gradient-descent step", ylim=(0, 1), title=" and ".join(pairs[0].classes))
        left.legend()
        image = middle.imshow(learned.map, vmin=0, vmax=1, cmap="cividis")
        middle.grid(False)
        middle.set(xlabel="query j", ylabel="key i", title="mean attention at the end")
        picture.colorbar(image, ax=middle, shrink=0.7)
        for measured in transferred.values():
            drawn = _band(right, measured, "last")
            data["curves"].append(drawn)
        right.set(xscale="log", xlabel="samples n", ylabel="test accuracy", title=" and ".join(pairs[1].classes))
        picture.legend(*right.get_legend_handles_labels(), loc="outside lower right", ncols=3)
        picture.suptitle(pairs[0].source, fontsize=8)
    return picture, data
