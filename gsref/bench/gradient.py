"""How fast is the gradient beside others?  `python -m gsref.bench gradient [--quick] [--json FILE] [--out FOLDER]`.

Every contender runs in a process of its own, which sleeps while the others run: thread pools do not disturb each other.
Times are interleaved, and answers checked against each other first.
"""

import importlib.util
import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np

from gsref.batched import stream_loss_and_gradient
from gsref.bench.growth import draw, floor, growth, inputs
from gsref.bench.meters import best_time, peak_memory
from gsref.bench.peers import CONTENDERS
from gsref.commands import OK, Parser, UsageError, integer_option, output_folder
from gsref.files import write_text
from gsref.report import to_json, versions
from gsref.threads import SINGLE_BLAS

CALLS = 3                      # timed in a row, a turn each contender; the median counts
SHAPES = [(512, 16, 16), (512, 64, 16), (256, 32, 64), (64, 128, 128), (2048, 4, 8), (1024, 16, 32)]      # n, d, D


def serve(pipe, name):
    """The process of one contender: builds it for a shape, answers once, then times calls on request."""
    call = None
    while True:
        order, value = pipe.recv()
        try:
            if order == "stop":
                return
            if order == "shape":
                call = CONTENDERS[name][1](inputs(*value))
                call()
                pipe.send([np.asarray(part, dtype=np.float64) for part in call()])
            else:
                call()                         # its threads and caches wake up
                times = []
                for _ in range(CALLS):
                    start = time.perf_counter()
                    call()
                    times.append(time.perf_counter() - start)
                pipe.send(float(np.median(times)))
        except Exception as problem:
            pipe.send(f"{type(problem).__name__}: {str(problem).splitlines()[:1]}")


def difference(answers, reference):
    """Largest relative difference of loss, dv and dW, each of the largest entry."""
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(answers, reference))


def rates():
    """What dgemm and exp reach here, one thread: operations and exponentials a second."""
    rng = np.random.default_rng(0)
    A, x = rng.standard_normal((768, 768)), rng.standard_normal(1 << 14)
    out = np.empty_like(x)
    with SINGLE_BLAS:
        return 2 * 768 ** 3 / best_time(lambda: A @ A, 7), len(x) / best_time(lambda: np.exp(x, out=out), 50)


def counts(n, d, D):
    """By formula: operations of matrix products, exponentials, bytes of inputs read once."""
    return n * (4 * D * d * d + 8 * D * D * d + 8 * D * D), n * D * D, 8 * n * D * d


def streamed_memory(samples):
    """MiB by which the peak of the process grows while `samples` of (d, D) = (16, 16) stream from a generator."""
    v, W, X, y, P = inputs(1000, 16, 16)
    stream_loss_and_gradient(v, W, [(X, y)], P)
    before = peak_memory()
    stream_loss_and_gradient(v, W, ((X, y) for _ in range(samples // 1000)), P)
    return peak_memory() - before


def measure(shapes, repeats, log=sys.stderr):
    """Rows {shape, contender: {median, difference}} of all contenders that are installed."""
    found = {name: package is None or importlib.util.find_spec(package) is not None
             for name, (package, _, _) in CONTENDERS.items()}
    context, pipes = multiprocessing.get_context("spawn"), {}
    for name in (name for name, there in found.items() if there):
        here, there = context.Pipe()
        context.Process(target=serve, args=(there, name), daemon=True).start()
        pipes[name] = here

    def ask(name, order, value=None):
        pipes[name].send((order, value))
        return pipes[name].recv()
    rows = []
    for shape in shapes:
        log.write(f"{shape}\n")
        answers = {name: ask(name, "shape", shape) for name in pipes}
        reference = answers["gsref, plain formulas"]
        errors = {name: a if isinstance(a, str) else difference(a, reference) for name, a in answers.items()}
        right = [name for name, error in errors.items() if not isinstance(error, str) and error < 1e-10]
        times = {name: [] for name in right}
        for _ in range(repeats + 2):
            for name in right:
                times[name].append(ask(name, "time"))
        medians = {name: float(np.median(times[name][2:])) for name in right}
        rows.append({"shape": shape, "medians": medians, "differences": errors, "floor": floor(*shape)})
    for name in pipes:
        pipes[name].send(("stop", None))
    return {name: there for name, there in found.items()}, rows


def ratios(rows):
    """Times over the best of ours, a shape each: of the best peer, of autograd (None where there is no such peer), of
    ours on one thread and on two, and of products and exponentials alone."""
    result = []
    for row in rows:
        medians = row["medians"]
        ours = min(medians["gsref, 1 thread"], medians["gsref, 2 threads"])
        peers = {name: value for name, value in medians.items() if CONTENDERS[name][2]}
        best = min(peers, key=peers.get) if peers else None
        result.append({"shape": row["shape"], "best": best, "to best": peers[best] / ours if peers else None,
                       "to autograd": peers["autograd"] / ours if "autograd" in peers else None,
                       "one thread": medians["gsref, 1 thread"] / ours,
                       "two threads": medians["gsref, 2 threads"] / ours, "floor": row["floor"] / ours})
    return result


def geometric_mean(values):
    values = [value for value in values if value is not None]
    return float(np.exp(np.mean(np.log(values)))) if values else None


def means_line(means):
    """The geometric means in words; what has no value (no such peer here) is left out."""
    words = {"to best": "best peer", "to autograd": "autograd", "one thread": "one thread", "two threads": "two threads",
             "floor": "products and exp alone"}
    return "time over our best, geometric means: " + ", ".join(
        f"{words[key]} {value:.2f}" for key, value in means.items() if value is not None)


def main(argv):
    parser = Parser(prog="python -m gsref.bench gradient", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two shapes, fewer samples: a look")
    parser.add_argument("--repeats", type=integer_option(1), default=15, metavar="N", help="a shape (default 15)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="also measure growth; a picture and its numbers")
    args = parser.parse_args(argv)
    try:
        if args.out:
            output_folder(args.out)
    except UsageError as problem:
        parser.error(str(problem))
    dgemm, exp = rates()
    found, rows = measure(SHAPES[::4] if args.quick else SHAPES, args.repeats)
    compared = ratios(rows)
    print("installed:", "; ".join(name for name, there in found.items() if there))
    print("not found:", "; ".join(name for name, there in found.items() if not there) or "none")
    if not SINGLE_BLAS.libraries():
        print("threadpoolctl not found: BLAS keeps its own threads, which compete with those over chunks (extra fast)")
    print(f"one thread reaches {dgemm / 1e9:.0f} Gflop/s in dgemm and {exp / 1e9:.2f} G exp/s\n")
    for row, ratio in zip(rows, compared):
        flops, exps, size = counts(*row["shape"])
        bound = flops / dgemm + exps / exp
        print(f"(n, d, D) = {tuple(row['shape'])}: {flops / 1e6:.0f} Mflop, {exps / 1e6:.2f} M exp, "
              f"{size / 1e6:.1f} MB read")
        for name, median in sorted(row["medians"].items(), key=lambda item: item[1]):
            share = f"  {bound / median:4.0%} of dgemm and exp" if name == "gsref, 1 thread" else ""
            print(f"  {name:28s} {1e3 * median:9.3f} ms   difference {row['differences'][name]:.0e}{share}")
        for name, error in row["differences"].items():
            if name not in row["medians"]:
                print(f"  {name:28s} not timed: {error}")
        print(f"  {'products and exp alone':28s} {1e3 * row['floor']:9.3f} ms   one thread, NumPy")
        if ratio["best"]:
            print(f"  ahead of the best peer ({ratio['best']}) {ratio['to best']:.2f} times; "
                  f"products and exp alone would be {ratio['to best'] / ratio['floor']:.2f} times")
    means = {key: geometric_mean([ratio[key] for ratio in compared])
             for key in ("to best", "to autograd", "one thread", "two threads", "floor")}
    memory = streamed_memory(20000 if args.quick else 10 ** 6)
    print(f"\n{means_line(means)}; peak memory of a stream grows by {memory:.1f} MiB")
    if args.json:
        write_text(args.json, to_json({"versions": versions(), "found": found, "dgemm": dgemm, "exp": exp, "rows": rows,
                                       "ratios": compared, "means": means, "stream MiB": memory,
                                       "date": time.strftime("%Y-%m-%d")}))
    if args.out:
        from gsref import plots                # here: a run without a picture need not wait for matplotlib

        picture, data = draw(compared, growth())
        plots.save(picture, args.out, "speed", {**data, "date": time.strftime("%Y-%m-%d"), "means": means})
        print(f"written to {args.out}: speed.png, .svg and .json")
    return OK
