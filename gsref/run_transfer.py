"""Check what is claimed about transfer: `python -m gsref.run_transfer`.

Takes a pretrained model to downstream tasks of the same group-sparsity pattern, beside logistic regression on the
vectorised features and training from zero; judges the claims A6 and A7, repeats the patch experiment on images, prints
the table, and writes report.json, transfer.npz and the pictures (PNG, SVG, each with its numbers as JSON) to --out.
Takes about a minute and a half with the default sizes. Exit status: 0, also when claims fail (--strict: 1 then), 2 for
a bad option, 130 when interrupted.
"""

import hashlib
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gsref.arguments import real_array
from gsref.commands import (FAILED_CLAIM, OK, Parser, Progress, UsageError, add_run_options, integer_option,
                            open_checkpoint, option, output_folder, positive_option, run, unusable)
from gsref.files import write_arrays, write_text
from gsref.learning_rate import ALLOWED, LearningRate
from gsref.population import MODES
from gsref.problem import Problem
from gsref.report import table, to_json, versions
from gsref.stability import stable_eta
from gsref.transfer import baselines, images
from gsref.transfer.claims import STATISTICS, Cell, Results, checks, exponent_table
from gsref.transfer.experiments import METHODS, Measured, direction_of, lengths, measure, seeds_of
from gsref.transfer.patches import PatchRun, PatchTask, learn_patches
from gsref.transfer.pretrained import NotReached, Pretrained, pretrain, read_pretrained
from gsref.transfer.task import LAWS, DownstreamTask

TUNING = {
    "pretrained": "step size: one rule for all sizes, {multiple:g} x 2/(D^2 (d + (D+1)/2)); not tuned to a task",
    "logistic_sgd": "step size: the best in hindsight of {linear_steps} x 1/(d D), for each task, by mistakes in all",
    "from_zero": "step size: the best in hindsight of {from_zero_steps} x 1/(D (d + (D+1)/2)), for each task, by mistakes in all",
    "max_likelihood": "nothing to tune; L-BFGS until the largest gradient entry is below 1e-6; its average online error is "
                      "that of refitting after every sample, interpolated between the numbers of samples looked at"}


def parser():
    parse = Parser(prog="python -m gsref.run_transfer", description=" ".join(__doc__.split("\n\n")[1].split()))

    def sizes(most):
        return option(lambda text: sorted({int(part) for part in text.split(",")}), f"integers from 1 to {most}, as in 4,8",
                      lambda sizes: 1 <= sizes[0] and sizes[-1] <= most)
    losses = option(lambda text: sorted({float(part) for part in text.split(",")}, reverse=True),
                    "numbers between 0 and 0.5, as in 0.05,0.01", lambda eps: 0 < eps[-1] and eps[0] < 0.5)
    margins = option(lambda text: list(dict.fromkeys(float(part) for part in text.split(","))),
                     "numbers from 0 to 37, as in 0.5,1", lambda margins: 0 <= min(margins) and max(margins) <= 37)
    parse.add_argument("--d", type=sizes(256), default=None, metavar="LIST", help="features a group (default 4,8,16)")
    parse.add_argument("--D", type=sizes(64), default=None, metavar="LIST", help="numbers of groups (default 4,8,16)")
    parse.add_argument("--relevant", type=integer_option(0), default=0, metavar="R", help="relevant group, from 0 (default 0)")
    parse.add_argument("--margin", type=margins, default=None, metavar="LIST",
                       help="margins; the first given is that of the grid of sizes (default 0.5 and 1, 0.25, 0)")
    parse.add_argument("--law", choices=LAWS, default="gaussian", help="law of the grid of sizes (default gaussian)")
    parse.add_argument("--eps", type=losses, default=None, metavar="LIST",
                       help="errors whose numbers of samples are tabulated (default 0.05,0.02,0.01)")
    parse.add_argument("--seeds", type=integer_option(4, 1000), default=None, metavar="N", help="seeds (default 24)")
    parse.add_argument("--start", choices=("zero", "pretrained"), default="zero",
                       help="where the value vector starts downstream (default zero)")
    parse.add_argument("--step", type=positive_option(1e3), default=1.0, metavar="X",
                       help="downstream step size in units of the default rule (default 1)")
    parse.add_argument("--pretrained", type=Path, default=None, metavar="FILE.npz",
                       help="arrays v (d+D,) and W (d+D, d+D) instead of the recursion; with one --d and one --D")
    parse.add_argument("--eta", type=option(LearningRate.parse, ALLOWED), default=LearningRate.parse("0.5/D"),
                       metavar="RULE", help=f"learning rate of pretraining: {ALLOWED} (default 0.5/D)")
    parse.add_argument("--mode", choices=MODES, default="position_only",
                       help="of pretraining: position_only (W11 frozen at zero, the default), or full, which takes longer")
    parse.add_argument("--images", type=Path, default=None, metavar="FOLDER",
                       help="folder with the CIFAR-10 python batches, for the patch experiment (default: the digits "
                            "of an installed scikit-learn, else images drawn by the run)")
    add_run_options(parse, "transfer-out")
    return parse


@dataclass(frozen=True)
class Unit:
    """One unit of work: its name in the checkpoint, a guess of its cost, what makes its arrays, and what reads them.

    `read(arrays)` raises TypeError or ValueError for arrays that the unit did not make.
    """

    name: str
    cost: float
    work: object
    read: object


class Work:
    """Does units one after the other, keeps what is done in the checkpoint, and shows progress."""

    def __init__(self, args, units):
        self.checkpoint, self.kept = open_checkpoint(args)
        self.line = Progress()
        self.units, self.total, self.done = units, sum(unit.cost for unit in units), 0.0

    def results(self):
        """{name: mapping of arrays} of all units."""
        found = {}
        for unit in self.units:
            mine = {key.removeprefix(unit.name + "/"): value for key, value in self.kept.items()
                    if key.startswith(unit.name + "/")}
            if not mine:
                mine = unit.work(found, lambda text, share: self.line.show(
                    f"{unit.name}: {text}", (self.done + unit.cost * min(share, 1.0)) / self.total))
                mine = {key: np.array(value, order="C") for key, value in mine.items()}     # sums depend on the layout, to the
                self.kept |= {f"{unit.name}/{key}": value for key, value in mine.items()}   # last bit, and files keep only this
                self.checkpoint.save(self.kept)
            else:
                try:
                    unit.read(mine)
                except (TypeError, ValueError) as damage:
                    raise unusable(self.checkpoint, f"{unit.name}: {damage}") from None
            found[unit.name] = mine
            self.done += unit.cost
            self.line.show(unit.name, min(self.done / self.total, 1.0))
        self.line.close()
        return found


def cells_of(args):
    """(main cell, {cell: methods}): the grid of sizes with every method, then margins and laws at the main size."""
    margin = args.margin[0]
    main = Cell(args.d[len(args.d) // 2], args.D[len(args.D) // 2], args.law, margin)
    cells = {Cell(d, D, args.law, margin): METHODS for d in args.d for D in args.D}
    for other in args.margin[1:]:
        # without a margin the claim on maximum likelihood meets its own regime: error of order d D / n
        methods = ("pretrained", "logistic_sgd", "max_likelihood") if other == 0 else ("pretrained", "logistic_sgd")
        cells.setdefault(Cell(main.d, main.D, args.law, other), methods)
    for law in LAWS:
        cells.setdefault(Cell(main.d, main.D, law, margin), ("pretrained", "logistic_sgd"))
    return main, cells


def seeds_for(args, method):
    """How many seeds: fewer for the methods that cost most and claim least."""
    return {"pretrained": args.seeds, "logistic_sgd": args.seeds, "from_zero": max(4, args.seeds // 2),
            "max_likelihood": max(4, args.seeds // 3)}[method]


def cost_of(method, d, D, n, seeds):
    """Seconds, very roughly."""
    if method == "max_likelihood":
        return 1e-9 * seeds * n * d * D * 150 + 0.2
    if method == "logistic_sgd":
        return n * (4e-5 + 1e-8 * seeds * len(baselines.LINEAR_STEPS) * d * D)
    members = seeds * (len(baselines.FROM_ZERO_STEPS) if method == "from_zero" else 1)
    return n * (2e-4 + members * (6e-6 + 1.5e-9 * (d + D) ** 2 * 4)) + 1.0


def tasks_of(args, cells):
    """{cell: its DownstreamTask}; UsageError for what no sample can have."""
    tasks = {}
    for cell in cells:
        try:
            problem = Problem(cell.d, cell.D, relevant=args.relevant)
        except ValueError as mistake:
            raise UsageError(f"--relevant: {mistake}") from None
        try:
            tasks[cell] = DownstreamTask(problem, direction_of(args.seed, cell.d), cell.law, cell.margin)
        except ValueError as mistake:
            raise UsageError(f"--margin: {cell.text}: {mistake}") from None
    return tasks


def pretraining_units(args, sizes):
    """One unit a size; a file given by the user is read, and checked against the pattern, before any of them runs."""
    units = []
    for d, D in sizes:
        problem = Problem(d, D, relevant=args.relevant)
        if args.pretrained is not None:
            try:
                found = read_pretrained(args.pretrained, problem)
            except ValueError as mistake:
                raise UsageError(f"--pretrained: {mistake}") from None
            args.inputs.append(digest(found.v, found.W))
            units.append(Unit(f"pretrained d={d} D={D}", 0.01, lambda found, show, model=found: as_arrays(model),
                              lambda arrays, problem=problem: read_model(arrays, problem)))
            continue
        eta = rate_of(args, problem)

        def work(found, show, problem=problem, eta=eta):
            if eta is None:
                eta = stable_eta(problem, args.mode, seed=args.seed)
            target = 1 / problem.D**2

            def callback(step, loss):
                show(f"step {step:,}, loss {loss:.3g} (to {target:.3g})", np.log(np.log(2) / loss) / np.log(np.log(2) / target))
            try:
                return as_arrays(pretrain(problem, eta, target, args.mode, callback=callback))
            except NotReached as failure:
                raise UsageError(f"--eta: {failure}") from None
            except OverflowError as failure:
                raise UsageError(f"--eta: pretraining at d={problem.d}, D={problem.D}, eta={eta:g}: {failure}") from None
        units.append(Unit(f"pretrained d={d} D={D}", 0.3 if args.mode == "position_only" else 60.0, work,
                          lambda arrays, problem=problem: read_model(arrays, problem)))
    return units


def rate_of(args, problem):
    """The learning rate of pretraining, None for `stable` (which takes the path).  UsageError for 0 or inf."""
    if args.eta.stable:
        return None
    try:
        eta = args.eta.at(problem)
    except OverflowError:
        eta = np.inf
    if not 0 < eta < np.inf:
        raise UsageError(f"--eta: got {args.eta.text!r}, which is {eta:g} at D = {problem.D}, expected a finite number > 0")
    return eta


def digest(*arrays):
    """A fingerprint of arrays that come from outside: a checkpoint belongs to them as it does to the options."""
    joined = hashlib.sha256()
    for array in arrays:
        joined.update(np.ascontiguousarray(array).tobytes())
    return joined.hexdigest()[:16]


def read_model(arrays, problem):
    """The Pretrained in `arrays`.  TypeError or ValueError if it is none of `problem`."""
    size, missing = problem.d + problem.D, {"v", "W", "source"} - set(arrays)
    if missing:
        raise ValueError(f"{', '.join(sorted(missing))}: missing")
    return Pretrained(real_array("v", arrays["v"], (size,)), real_array("W", arrays["W"], (size, size)), str(arrays["source"]),
                      {key.removeprefix("details/"): value for key, value in arrays.items() if key.startswith("details/")})


def as_arrays(model):
    """A Pretrained as a mapping of arrays."""
    return {"v": model.v, "W": model.W, "source": np.array(model.source),
            **{f"details/{name}": np.asarray(value) for name, value in model.details.items()}}


def learning_units(args, main, cells, tasks):
    units = []
    for k, (cell, methods) in enumerate(cells.items()):
        seeds = seeds_of(args.seed, k, count=args.seeds)
        for method in methods:
            mine = seeds[:seeds_for(args, method)]
            try:
                at = lengths(method, cell.d, cell.D, cell.margin, args.eps[-1])
            except ValueError as mistake:
                raise UsageError(f"--eps: {mistake}") from None

            def work(found, show, cell=cell, method=method, mine=mine, at=at):
                model = read_model(found[f"pretrained d={cell.d} D={cell.D}"], tasks[cell].problem)
                return measure(method, tasks[cell], model, mine, at, args.start, args.step,
                               lambda n: show(f"sample {n:,} of {at[-1]:,}", n / at[-1])).arrays()
            units.append(Unit(f"{method}, {cell.text}", cost_of(method, cell.d, cell.D, at[-1], len(mine)), work,
                              lambda arrays, method=method, mine=mine, at=at: read_measured(arrays, method, mine, at)))
    return units


def read_measured(arrays, method, seeds, at):
    """The Measured in `arrays`.  TypeError or ValueError if it is none of this method, seeds and numbers of samples."""
    found = Measured.from_arrays(arrays)
    if found.method != method or found.last.shape != (len(seeds), len(at)) or (found.at != at).any():
        raise ValueError(f"got {found.method} with {len(found.last)} seeds and {len(found.at)} numbers of samples, expected "
                         f"{method} with {len(seeds)} and {len(at)}")
    return found


def image_units(args, pairs):
    """Learn the patch on the first pair of classes; take the model to the second pair, beside two other methods."""
    D, relevant, steps = (4, 1, 30) if args.quick else (8, 3, 100)
    seeds = seeds_of(args.seed, 10**6, count=4)
    at = lengths("pretrained", 64, D, 0.5, 1.0 if args.quick else 0.1)
    first, second = (PatchTask(pair, D, relevant) for pair in pairs)

    def learn(found, show):
        return learn_patches(first, steps, np.random.default_rng([args.seed, 3]), callback=lambda step, loss: show(
            f"step {step} of {steps}, loss {loss:.3g}", step / steps)).arrays()

    def transfer(found, show, method):
        learned = PatchRun.from_arrays(found["patches, learning"], first)
        return measure(method, second, Pretrained(learned.v, learned.W, "", {}), seeds, at,
                       callback=lambda n: show(f"sample {n} of {at[-1]}", n / at[-1])).arrays()
    return [Unit("patches, learning", 0.03 * steps, learn, lambda arrays: PatchRun.from_arrays(arrays, first)),
            *(Unit(f"patches, {method}", 1.5 if args.quick else 4.0,
                   lambda found, show, method=method: transfer(found, show, method),
                   lambda arrays, method=method: read_measured(arrays, method, seeds, at)) for method in METHODS[:3])]


def body(args):
    args.d = args.d or ([4, 8] if args.quick else [4, 8, 16])
    args.D = args.D or ([4, 8] if args.quick else [4, 8, 16])
    args.eps = args.eps or ([0.1, 0.05] if args.quick else [0.05, 0.02, 0.01])
    args.margin = args.margin or ([0.5, 1.0] if args.quick else [0.5, 1.0, 0.25, 0.0])
    args.seeds = args.seeds or (8 if args.quick else 24)
    if args.pretrained is not None and (len(args.d), len(args.D)) != (1, 1):
        raise UsageError("--pretrained: expected one --d and one --D, those of the model in the file")
    args.inputs = []                           # fingerprints of files: options of the run, as its checkpoint sees it
    main, cells = cells_of(args)
    tasks = tasks_of(args, cells)
    pretraining = pretraining_units(args, sorted({(cell.d, cell.D) for cell in cells}))
    try:
        pairs = images.available(args.images, np.random.default_rng([args.seed, 4]))
        patches = image_units(args, pairs)
        args.inputs.append(digest(*(part for pair in pairs for part in (pair.x, pair.y, pair.x_test, pair.y_test))))
    except images.UnusableImages as mistake:
        raise UsageError(f"--images: {mistake}") from None
    learning = learning_units(args, main, cells, tasks)
    output_folder(args.out)
    work = Work(args, [*pretraining, *learning, *patches])
    found = work.results()
    results = Results({cell: {method: Measured.from_arrays(found[f"{method}, {cell.text}"]) for method in methods}
                       for cell, methods in cells.items()}, main, tuple(args.eps))
    judged = checks(results)
    print(table(judged))
    write_outputs(args, results, judged, found, pairs)
    work.checkpoint.remove()
    print(f"\nwritten to {args.out}: report.json, transfer.npz, pictures")
    return FAILED_CLAIM if args.strict and any(check.verdict == "fails" for check in judged) else OK


def write_outputs(args, results, judged, found, pairs):
    from gsref.plots import save               # here: a bad option or an unwritable folder need not wait for matplotlib
    from gsref.transfer import plots

    patches = PatchRun(**found["patches, learning"])               # read once already, where it came from a checkpoint
    transferred = {method: Measured.from_arrays(found[f"patches, {method}"]) for method in METHODS[:3]}
    main = results.main
    models = {name: {key.removeprefix("details/"): value for key, value in arrays.items() if key not in ("v", "W")}
              for name, arrays in found.items() if name.startswith("pretrained d=")}
    steps = {"linear_steps": baselines.LINEAR_STEPS, "from_zero_steps": baselines.FROM_ZERO_STEPS}
    tuning = {method: text.format(multiple=args.step, **steps) for method, text in TUNING.items()}
    print(f"\npretrained model: {models[f'pretrained d={main.d} D={main.D}']['source']} (d = {main.d}, D = {main.D})")
    for method, text in tuning.items():
        print(f"{method}: {text}")
    print(f"images: {pairs[0].source}; {pairs[0].classes[0]} and {pairs[0].classes[1]}: after {patches.step[-1]:.0f} steps of "
          f"full-batch descent, attention on the image {patches.attention[-1]:.3f} (from {patches.attention[0]:.3f}), test "
          f"error {patches.test_error[-1]:.3f}")
    write_arrays(args.out / "transfer.npz", {f"{name}/{key}": np.asarray(value) for name, arrays in found.items()
                                             for key, value in arrays.items()})
    for name, (picture, data) in {
            "accuracy": plots.accuracy_against_samples(results), "samples": plots.samples_needed(results),
            "margin_law": plots.margin_and_law(results), "attention": plots.attention_before_after(results),
            "patches": plots.patches(patches, transferred, pairs)}.items():
        save(picture, args.out, name, data)
    write_text(args.out / "report.json", to_json({
        "problem": {"d": args.d, "D": args.D, "relevant": args.relevant, "law": args.law, "margin": args.margin,
                    "start_of_v": args.start},
        "learning_rate_rule": f"pretraining {args.eta.text}; downstream: see tuning", "tuning": tuning,
        "pretrained": models, "eps": args.eps, "seeds": {method: seeds_for(args, method) for method in METHODS},
        "seed": args.seed, "versions": versions(),
        "images": {"source": pairs[0].source, "classes": [pair.classes for pair in pairs],
                   "learning_images": [len(pair.y) for pair in pairs], "test_images": [len(pair.y_test) for pair in pairs],
                   "attention": patches.attention, "test_error": patches.test_error},
        "needed": [{"task": cell.text, "method": method, "eps": eps, "statistic": which,
                    "samples_and_error": found.needed(eps, which)}
                   for cell, methods in results.cells.items() for method, found in methods.items() for eps in args.eps
                   for which in STATISTICS],
        "exponents": exponent_table(results),
        "checks": [asdict(check) for check in judged]}))


def main(argv=None):
    return run(parser(), argv, body)


if __name__ == "__main__":
    sys.exit(main())
