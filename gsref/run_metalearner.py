"""Check the claims on metalearning linear classification: `python -m gsref.run_metalearner`.

Trains the linear-attention metalearner at the sizes of the published figure 1, and at reduced sizes of figure 2 (with
--figure2 at its published ones), compares it with the exact baselines and the population limit, judges the claims B1 to
B6, prints the table, and writes report.json, measurements.npz and the pictures (PNG, SVG, each with its numbers as JSON)
to --out. About 2 minutes; with --figure2 half a minute more; with --quick some 15 seconds. Exit status: 0, also when
claims fail (--strict: 1 then), 2 for a bad option, 130 when interrupted.
"""

import sys
import textwrap
import time
from dataclasses import asdict, replace

import numpy as np

from gsref.commands import (FAILED_CLAIM, OK, Parser, Progress, UsageError, add_run_options, integer_option,
                            open_checkpoint, option, output_folder, positive_option, run, unusable)
from gsref.files import write_arrays, write_text
from gsref.metalearner import claims, experiments
from gsref.metalearner.experiments import Figure
from gsref.metalearner.problem import MetaProblem
from gsref.metalearner.training import choose_way
from gsref.report import table, to_json, versions

SAVE_EVERY = 5.0                               # seconds between checkpoints of unfinished training

FIGURE1 = Figure(d=500, k=(30,), R=(2.0, 3.0), B=20000, M=(1, 5, 10, 20, 30, 40, 50, 100), T=2000, T_svm=2000)
FIGURE1_QUICK = replace(FIGURE1, d=100, k=(6,), B=800, T=1000, T_svm=300)
FIGURE2 = Figure(d=2000, k=(500, 1000, 1500), R=(5.0, 7.0, 9.0), B=2000, M=(1, 5, 20, 50, 150, 250, 500, 700), T=2000)
FIGURE2_REDUCED = replace(FIGURE2, d=500, k=(125, 250, 375), R=(3.5, 5.0, 6.5), B=500)
FIGURE2_QUICK = replace(FIGURE2, d=200, k=(50, 100, 150), R=(3.0, 4.0, 5.0), B=200)

GRID_SIZES = tuple(40 * 8 ** i for i in range(7))          # k and d of "examples needed", to 1e7: exact at any size
GRID_R = tuple(2.0 * 2.0 ** (i / 2) for i in range(7))        # to 16; geometric, so that exponents extrapolate
TASKS = ((32, 64, 128), (500, 2000, 8000), 2000)              # d, B and test contexts of "tasks needed"
TASKS_QUICK = ((16, 32, 64), (250, 1000, 4000), 2000)
PREDECESSOR, PREDECESSOR_QUICK = ((50, 100, 200, 400), 200), ((50, 100), 50)         # d; contexts for the Bayes rule


def parser():
    parse = Parser(prog="python -m gsref.run_metalearner", description=__doc__.split("\n\n")[1])
    radii = option(lambda text: tuple(sorted({float(part) for part in text.split(",")})),
                   "numbers from 1.5 to 100, as in 2,3", lambda R: 1.5 <= R[0] and R[-1] <= 100)
    lengths = option(lambda text: tuple(sorted({int(part) for part in text.split(",")})),
                     "integers from 1 to 100000, as in 1,5,10", lambda M: 1 <= M[0] and M[-1] <= 100000)
    parse.add_argument("--d", type=integer_option(2, 100000), metavar="N", help="dimension, figure 1 (default 500)")
    parse.add_argument("--k", type=integer_option(1, 100000), metavar="N", help="dimension of the subspace (default 30)")
    parse.add_argument("--R", type=radii, metavar="LIST", help="norms of the task means (default 2,3)")
    parse.add_argument("--B", type=integer_option(1, 10**7), metavar="N", help="training tasks (default 20000)")
    parse.add_argument("--N", type=integer_option(1, 10**6), default=40, metavar="N",
                       help="examples a training context (default 40)")
    parse.add_argument("--M", type=lengths, metavar="LIST",
                       help="examples of the test contexts (default 1,5,10,20,30,40,50,100)")
    parse.add_argument("--eta", type=positive_option(1e3), default=0.01, metavar="X", help="learning rate (default 0.01)")
    parse.add_argument("--steps", type=integer_option(1, 10**6), default=300, metavar="N",
                       help="gradient-descent steps (default 300)")
    parse.add_argument("--memory", type=positive_option(1e3), default=4.0, metavar="GB",
                       help="most memory that training may take, in GB (default 4)")
    parse.add_argument("--figure2", action="store_true",
                       help="figure 2 at the published sizes: d = B = 2000, k 500, 1000, 1500, R 5, 7, 9 (half a minute more)")
    add_run_options(parse, "metalearner-out")
    return parse


class Keep:
    """What a measurement sees of the run: progress, and a place for the state of unfinished training."""

    def __init__(self, show, load, save):
        self.show, self.load, self.save = show, load, save


class Measurements:
    """Measurements by name, each made once; kept in a checkpoint so that an interrupted run goes on where it was."""

    def __init__(self, checkpoint, kept, progress, total):
        self.checkpoint, self.kept, self.progress, self.total, self.done = checkpoint, kept, progress, total, 0.0
        self.saved = time.monotonic()

    def _mine(self, prefix):
        return {key.removeprefix(prefix): value for key, value in self.kept.items() if key.startswith(prefix)}

    def __call__(self, name, weight, measure, *args, **options):
        """The arrays of `measure(*args, keep=.., **options)`; `weight` is its share of the run's time, in seconds."""
        found = self._mine(f"{name}/")
        if not found:
            unfinished = f"unfinished {name}/"

            def save(state):
                if time.monotonic() - self.saved > SAVE_EVERY:
                    self.kept |= {unfinished + key: value for key, value in state.items()}
                    self.checkpoint.save(self.kept)
                    self.saved = time.monotonic()
            keep = Keep(lambda share: self.progress.show(name, (self.done + share * weight) / self.total),
                        lambda: self._mine(unfinished) or None, save)
            keep.show(0.0)
            found = measure(*args, keep=keep, **options)
            self.kept = {key: value for key, value in self.kept.items() if not key.startswith(unfinished)}
            self.kept |= {f"{name}/{key}": value for key, value in found.items()}
            self.checkpoint.save(self.kept)
        self.done += weight
        return found


def figures(args):
    """(figure 1, figure 2, whether each has the published sizes: two booleans) for these options."""
    first = FIGURE1_QUICK if args.quick else FIGURE1
    changes = {name: value for name, value in (("d", args.d), ("R", args.R), ("B", args.B), ("M", args.M)) if value}
    if args.k:
        changes["k"] = (args.k,)
    first = replace(first, N=args.N, eta=args.eta, steps=args.steps, **changes)
    if first.k[0] > first.d:
        raise UsageError(f"--k: got {first.k[0]}, expected an integer from 1 to --d = {first.d}")
    if first.M[-1] > first.d:
        raise UsageError(f"--M: got {first.M[-1]}, expected at most --d = {first.d}: a longer context need not be "
                         "separable, and the hard-margin SVM then does not exist")
    try:
        choose_way(first.B, first.d, first.steps, 1e9 * args.memory)
    except MemoryError as problem:
        raise UsageError(f"--memory: {problem}") from None
    second = FIGURE2 if args.figure2 else FIGURE2_QUICK if args.quick else FIGURE2_REDUCED
    second = replace(second, N=args.N, eta=args.eta, steps=args.steps)
    return first, second, (first == FIGURE1, second == FIGURE2)


def measure(args, first, second, measurements):
    """All measurements of the run, by what they are for."""
    quick, seed, k = args.quick, args.seed, first.k[0]
    one, svms, two = {}, {}, {}
    for R in first.R:
        one[R] = measurements(f"figure 1 R={R:g}", 35, experiments.accuracy_figure, first, k, R, seed,
                              memory=1e9 * args.memory)
        svms[R] = measurements(f"SVM R={R:g}", 15, experiments.svm_figure, first, k, R, seed)
    for R in second.R:
        for dim in second.k:
            two[dim, R] = measurements(f"figure 2 k={dim} R={R:g}", 8 if args.figure2 else 1, experiments.accuracy_figure,
                                       second, dim, R, seed, path=False, memory=1e9 * args.memory)
    last = 8 if quick else 12
    every = measurements("direction, all on the support", 1, experiments.direction, MetaProblem(60, 6, 2.0), 30, 40, 1.0,
                         last, seed)
    some = measurements("direction, some off the support", 1, experiments.direction, MetaProblem(20, 4, 2.0), 60, 40, 1.0,
                        last, seed)
    # the published figure 1 at a size where the max-margin solution is at hand: the same k/d and B/d^2
    d = 50 if quick else 150
    early = measurements("published steps", 10, experiments.published_steps, MetaProblem(d, max(1, round(0.06 * d)), 2.0),
                         round(0.08 * d * d), args.N, args.eta, args.steps, seed)
    grid = GRID_SIZES[:5] if quick else GRID_SIZES
    sizes = measurements("examples needed", 3, experiments.sample_sizes, grid, grid, GRID_R)
    tasks = measurements("tasks needed", 15, experiments.tasks_needed, 8, 2.0, args.N, *(TASKS_QUICK if quick else TASKS),
                         seed)
    dims, T_optimal = PREDECESSOR_QUICK if quick else PREDECESSOR
    before = measurements("predecessor", 10, experiments.predecessor, dims, 40, (5, 10, 20, 40, 80), 1000, 0.2, seed,
                          T_optimal=T_optimal)
    return one, svms, two, every, some, early, sizes, tasks, before


def body(args):
    first, second, published = figures(args)
    output_folder(args.out)
    progress = Progress()
    checkpoint, kept = open_checkpoint(args, ignore=("memory",))
    total = 50 * len(first.R) + (72 if args.figure2 else 9) + 40
    resumed = bool(kept)
    measurements = Measurements(checkpoint, kept, progress, total)
    try:
        one, svms, two, every, some, early, sizes, tasks, before = measure(args, first, second, measurements)
        progress.close()
        checks = [claims.b1(every, some, early), claims.b2(sizes, tasks), claims.b3(one, tasks), claims.b4(sizes),
                  claims.b5(one, svms, published[0]), claims.b6(two, published[1])]
    except (KeyError, IndexError, TypeError, ValueError) as problem:
        if not resumed:
            raise
        raise unusable(checkpoint, f"{type(problem).__name__}: {problem}") from problem
    print(table(checks))
    print("\n" + textwrap.fill(about_predecessor(before), 118))
    write_outputs(args, first, second, one, svms, two, every, some, sizes, tasks, before, checks, measurements.kept)
    checkpoint.remove()
    print(f"\nwritten to {args.out}: report.json, measurements.npz, pictures")
    return FAILED_CLAIM if args.strict and any(check.verdict == "fails" for check in checks) else OK


def about_predecessor(before):
    """What the predecessor's setting gave, in words."""
    trained = ", ".join(f"{row[-2]:.4f} (full MLE {mle[-2]:.4f}, d = {d})"
                        for row, mle, d in zip(before["accuracy"], before["full"], before["d"]))
    optimal = ", ".join(f"{row[1]:.3f} ({gain[1]:+.3f} +- {error[1]:.1g}, d = {d})" for row, gain, error, d in
                        zip(before["optimal"], before["gain"], before["gain_error"], before["d"]))
    return (f"The predecessor's setting (k = d, R_train = 5 sqrt(d), R_test = d^0.3, {before['flips']:g} of the context labels "
            f"flipped): accuracy at M = {before['M'][-2]:g} is {trained}. The Bayes rule, which weighs flips, has at M = "
            f"{before['M'][1]:g} (and over the full MLE) {optimal}.")


def write_outputs(args, first, second, one, svms, two, every, some, sizes, tasks, before, checks, kept):
    from gsref import plots                    # here: a bad option or an unwritable folder need not wait for matplotlib
    from gsref.metalearner import plots as pictures

    write_arrays(args.out / "measurements.npz", kept)
    for name, (picture, data) in {
            "figure1": pictures.accuracy_curves(one, svms, first), "figure2": pictures.accuracy_grid(two, second),
            "direction": pictures.direction_gap(every, some), "examples_needed": pictures.examples_needed(sizes),
            "tasks_needed": pictures.tasks_needed(tasks), "training": pictures.training_loss(one, first)}.items():
        plots.save(picture, args.out, name, data)
    population = {R: {"p": f["population_p"][-1], "limit_p": f["limit"][0], "limit_p_error": f["limit"][1], "trained_p":
                      f["order"][0], "trained_q": f["order"][1], "trained_rest": f["order"][2]} for R, f in one.items()}
    write_text(args.out / "report.json", to_json({
        "problem": asdict(first) | {"label_noise": 0.0}, "figure2": asdict(second),
        "learning_rate_rule": f"{first.eta:g}, {first.steps} steps", "seed": args.seed, "versions": versions(),
        "population": population, "predecessor": before, "checks": [asdict(check) for check in checks]}))


def main(argv=None):
    return run(parser(), argv, body)


if __name__ == "__main__":
    sys.exit(main())
