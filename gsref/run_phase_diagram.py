"""Map what each learning rate does: `python -m gsref.run_phase_diagram`.

Follows population gradient descent from zero over a grid of (D, eta) in both modes and says of each cell: selects the
relevant group gradually, selects it in a few large steps, locks onto the wrong groups, oscillates or diverges, or
leaves the symmetric manifold. Then locates the boundaries by bisection and fits their laws in D. Prints the map and
the laws, writes report.json and the picture (PNG, SVG, JSON) to --out. Takes at most three minutes on two cores with
the default grid. Exit status: 0, also when claims fail (--strict: 1 then), 2 for a bad option, 130 when interrupted.
"""

import json
import multiprocessing
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict

import numpy as np

from gsref import phase_diagram
from gsref.commands import (FAILED_CLAIM, OK, Parser, Progress, add_run_options, integer_option, number_option,
                            open_checkpoint, option, output_folder, run, unusable)
from gsref.files import write_text
from gsref.phase_diagram import BOUNDARIES, Cell, bisect, bracket, cell, claims, power_law, rates, run_jobs
from gsref.population import MODES
from gsref.report import table, to_json, versions

SIZES = {"position_only": (4, 8, 16, 32, 64, 128, 256, 512), "full": (4, 6, 8, 12, 16)}
QUICK = {"position_only": (4, 16, 64, 256), "full": (4,)}
COUNT, QUICK_COUNT = {"position_only": 15, "full": 9}, {"position_only": 8, "full": 4}
BISECTIONS = {"position_only": 4, "full": 2}
LETTERS = dict(zip(phase_diagram.OUTCOMES, "gfwox"))
SAVE_EVERY = 2.0                               # seconds between checkpoints


def parser():
    parse = Parser(prog="python -m gsref.run_phase_diagram", description=__doc__.split("\n\n")[1])
    sizes = option(lambda text: sorted({int(part) for part in text.split(",")}),
                   "integers from 3 to 4096, as in 4,8,16", lambda D: 3 <= D[0] and D[-1] <= 4096)
    parse.add_argument("--mode", choices=(*MODES, "both"), default="both", help="default both")
    parse.add_argument("--D", type=sizes, default=None, metavar="LIST", help="numbers of groups (default "
                       + "; ".join(f"{mode}: {','.join(map(str, D))}" for mode, D in SIZES.items()) + ")")
    parse.add_argument("--d", type=integer_option(1, 4096), default=4, metavar="N", help="features a group (default 4)")
    parse.add_argument("--sigma", type=number_option(1e-100, 1e3), default=1.0, metavar="X",
                       help="standard deviation of a feature (default 1)")
    counts = "; ".join(f"{mode}: {n}" for mode, n in COUNT.items())
    parse.add_argument("--rates", type=integer_option(3, 200), default=None, metavar="N",
                       help=f"learning rates for each D, from 4/D^2 to 16 (default {counts})")
    parse.add_argument("--workers", type=integer_option(1, 1024), default=2, metavar="N",
                       help="processes of the default pool (default 2)")
    add_run_options(parse, "phase-diagram-out")
    return parse


def quiet_worker():
    """In a worker: leave Ctrl-C to the parent, and die of SIGTERM as usual."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def process_pool(workers):
    """The default executor.  Fresh processes: a fork of a process with threads (BLAS) may hang."""
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=quiet_worker)


class Store:
    """Results of jobs, saved now and then, and found again by --resume.  Keys are (kind, *plain numbers)."""

    def __init__(self, args):
        # the grid may change between runs: results are found again by their own numbers
        self.checkpoint, kept = open_checkpoint(args, ignore=("mode", "D", "rates", "workers", "quick"))
        self.saved, self.cells, self.edges = time.monotonic(), {}, {}
        if kept:
            try:
                kept = json.loads(str(kept["results"]))
                self.cells = {tuple(job): Cell(**found) for job, found in kept["cells"]}
                self.edges = {tuple(job): tuple(found) for job, found in kept["edges"]}
            except (KeyError, TypeError, ValueError) as damage:
                raise unusable(self.checkpoint, f"{type(damage).__name__}: {damage}") from None

    def save(self, force=False):
        if force or time.monotonic() - self.saved > SAVE_EVERY:
            text = to_json({"cells": [[job, found] for job, found in list(self.cells.items())],
                            "edges": [[job, found] for job, found in list(self.edges.items())]})
            self.checkpoint.save({"results": np.array(text)})
            self.saved = time.monotonic()


def jobs_of(args, modes):
    """The cells of the grid, slow ones first so that the last minute keeps all workers busy."""
    jobs = []
    for mode in modes:
        for D in args.D or (QUICK if args.quick else SIZES)[mode]:
            count = args.rates or (QUICK_COUNT if args.quick else COUNT)[mode]
            jobs += [(mode, args.d, D, args.sigma, float(eta), args.seed) for eta in rates(D, count)]
    return sorted(jobs, key=lambda job: (job[0] != "full", -job[2], job[4]))


def cost(job):
    """About how long a cell takes, in units of one in position-only mode: for the progress line only."""
    mode, _, D, _, eta, _ = job
    return 1 if mode == "position_only" else 3 * D * (1 + 0.02 / eta)


def edges_of(args, cells):
    """Bisections between neighbouring cells that lie on the two sides of a boundary."""
    columns = {}
    for found in cells:
        columns.setdefault((found.mode, found.D), []).append(found)
    jobs = []
    for (mode, D), column in columns.items():
        for name in BOUNDARIES:
            ends = bracket(name, column)
            if ends:
                jobs.append((name, mode, args.d, D, args.sigma, *ends, args.seed, BISECTIONS[mode]))
    return sorted(jobs, key=lambda job: (job[1] != "full", -job[3]))


def compute(args, modes, executor, store):
    """All cells, then all boundaries; returns (cells, laws)."""
    progress, pool = Progress(), executor or process_pool(args.workers)
    jobs = jobs_of(args, modes)

    whole = sum(map(cost, jobs))

    def report(job, found):
        store.save()
        share = 0.7 * sum(map(cost, store.cells)) / whole + 0.3 * min(len(store.edges) / (24 + 6 * len(modes)), 0.99)
        progress.show(f"{len(store.cells)} of {len(jobs)} cells, {len(store.edges)} boundary points", share)
    try:
        with nullcontext(pool) if executor else pool:
            try:
                run_jobs(cell, jobs, pool, store.cells, report)
                cells = [store.cells[job] for job in jobs]
                edges = edges_of(args, cells)
                run_jobs(bisect, edges, pool, store.edges, report)
            except KeyboardInterrupt:
                if not executor:
                    sys.stderr.write("\ninterrupted: waiting for the cells that have begun\n")
                raise
    except KeyboardInterrupt:
        store.save(force=True)
        raise
    finally:
        progress.close()
    laws = []
    for mode in modes:
        for name in BOUNDARIES:
            found = sorted((job[3], *store.edges[job]) for job in edges if job[:2] == (name, mode))
            if len(found) >= 3:
                laws.append(power_law(name, mode, *zip(*found)))
    return cells, laws


def picture_of(cells, mode):
    """The map of one mode as text: one row a size, from the smallest rate to the largest."""
    mine = [found for found in cells if found.mode == mode]
    lines = [f"{mode} mode; rates from 4/D^2 to {max(found.eta for found in mine):g}, "
             + ", ".join(f"{letter}: {name}" for name, letter in LETTERS.items()) + ", ?: uncertain"]
    for D in sorted({found.D for found in mine}):
        column = sorted((found for found in mine if found.D == D), key=lambda found: found.eta)
        outcomes, paths = (" ".join(LETTERS[getattr(found, what)] + ("" if found.certain else "?") for found in column)
                           for what in ("outcome", "path"))
        lines.append(f"  D = {D:<5d} {outcomes}   path alone: {paths}".rstrip())
    return "\n".join(lines)


def text_of(law):
    return (f"  {law.mode:14s}{law.name:26s}eta = {law.factor:.3g} D^({law.exponent:.3f} +- {law.error:.2g})"
            f"   D = {law.D[0]} to {law.D[-1]}, {len(law.D)} sizes")


def body(args, executor=None):
    output_folder(args.out)
    modes = ("position_only", "full") if args.mode == "both" else (args.mode,)
    store = Store(args)
    cells, laws = compute(args, modes, executor, store)
    checks = claims(cells, laws, args.d, args.sigma)
    print("\n\n".join(picture_of(cells, mode) for mode in modes))
    print("\nBoundaries as laws in D (95 % bounds):")
    print("\n".join(map(text_of, laws)) or "  fewer than three sizes have one")
    if checks:
        print("\n" + table(checks))
    from gsref import plots                    # here: a bad option or an unwritable folder need not wait for matplotlib

    picture, data = plots.phase_map(cells, laws, phase_diagram.OUTCOMES)
    plots.save(picture, args.out, "phase_diagram", data)
    write_text(args.out / "report.json", to_json({
        "d": args.d, "sigma": args.sigma, "seed": args.seed, "versions": versions(), "outcomes": phase_diagram.OUTCOMES,
        "cells": cells, "laws": laws, "checks": [asdict(check) for check in checks]}))
    store.checkpoint.remove()
    print(f"\nwritten to {args.out}: report.json, phase_diagram.png, .svg and .json")
    return FAILED_CLAIM if args.strict and any(check.verdict == "fails" for check in checks) else OK


def main(argv=None, executor=None):
    """The command; `executor`: any concurrent.futures.Executor to spread the work over (default: a process pool)."""
    return run(parser(), argv, lambda args: body(args, executor))


if __name__ == "__main__":
    sys.exit(main())
