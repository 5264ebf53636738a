"""What do all `python -m gsref.run_*` commands share?  Options, progress, interruption, the output folder."""

import argparse
import contextlib
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from gsref.files import Checkpoint
from gsref.report import versions

OK, FAILED_CLAIM, USAGE, INTERRUPTED = 0, 1, 2, 130


class UsageError(Exception):
    """Something that the user typed cannot be used; its text is one line."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line on stderr and exit status 2."""

    def error(self, message):
        sys.stderr.write(f"{self.prog}: {' '.join(message.splitlines())}\n")
        raise SystemExit(USAGE)


def option(kind, allowed, valid=lambda value: True):
    """An argparse type: `kind(text)` if that works and is `valid`, else an error that says what is `allowed`."""
    def convert(text):
        try:
            value = kind(text)
            if valid(value):
                return value
        except (ValueError, OverflowError):
            pass
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {allowed}")
    return convert


def integer_option(least, most=None):
    allowed = f"an integer >= {least}" if most is None else f"an integer from {least} to {most}"
    return option(int, allowed, lambda k: k >= least and (most is None or k <= most))


def positive_option(most=float("inf")):
    allowed = "a number > 0" if most == float("inf") else f"a number > 0 and <= {most:g}"
    return option(float, allowed, lambda x: 0 < x <= most and x < float("inf"))


def number_option(least, most):
    return option(float, f"a number from {least:g} to {most:g}", lambda x: least <= x <= most)


def add_run_options(parser, out, resume=True):
    """The options that every run has; `resume`: it keeps a checkpoint."""
    parser.add_argument("--out", type=Path, default=Path(out), metavar="DIR", help=f"output folder (default {out}/)")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: a look in at most 20 seconds")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if any claim fails")
    if resume:
        parser.add_argument("--resume", action="store_true",
                            help="go on from the checkpoint of an interrupted run in --out")
    parser.add_argument("--seed", type=integer_option(0), default=0, metavar="N",
                        help="seed of all sampling (default 0)")


def output_folder(path):
    """Make `path` and write to it once, so that a run that cannot keep its results never starts.  UsageError if not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as problem:
        raise UsageError(f"--out: cannot write to {str(path)!r} ({problem.strerror}), "
                         "expected a writable folder") from None
    return path


def open_checkpoint(args, ignore=()):
    """(checkpoint.npz in --out, what --resume finds in it: a mapping of arrays, empty if there is nothing).

    All options that `args` has belong to the checkpoint, but those that change no number and the names in `ignore`.
    UsageError if the file cannot be read or belongs to a run with other options.
    """
    ignore = {"out", "resume", "strict", *ignore}
    options = {name: str(value) for name, value in vars(args).items() if name not in ignore}
    checkpoint = Checkpoint(args.out / "checkpoint.npz", options | versions())
    if not args.resume:
        return checkpoint, {}
    try:
        kept = checkpoint.load()
    except ValueError as problem:
        raise UsageError(f"--resume: {problem}") from None
    if kept is None:
        sys.stderr.write("no checkpoint in --out: starting anew\n")
    return checkpoint, kept or {}


def unusable(checkpoint, problem):
    """The UsageError of a checkpoint that can be read but holds something else than the run has saved."""
    return UsageError(f"--resume: {checkpoint.path}: not a usable checkpoint ({problem}); delete it to start anew")


class Progress:
    """Progress on stderr: one line rewritten in place on a terminal, a plain line every `every` seconds elsewhere.

    `fraction` of `show` is the share of the work that is done, from 0 to 1; the time left is extrapolated from it.
    """

    def __init__(self, stream=None, every=5.0):
        self.stream = sys.stderr if stream is None else stream
        self.terminal = self.stream.isatty()
        self.every = 0.1 if self.terminal else every
        self.start = self.last = time.monotonic()
        self.width = 0

    def show(self, text, fraction, force=False):
        now = time.monotonic()
        if not force and now - self.last < self.every:
            return
        self.last = now
        spent = now - self.start
        left = f"{spent * (1 - fraction) / fraction:.0f} s left" if fraction > 0.01 and spent > 1 else "estimating time"
        line = f"{text}  {100 * fraction:3.0f} %  {left if fraction < 1 else f'{spent:.0f} s'}"
        self.stream.write(f"\r{line.ljust(self.width)}" if self.terminal else f"{line}\n")
        self.stream.flush()
        self.width = len(line)

    def close(self):
        if self.terminal and self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()


@contextlib.contextmanager
def terminable():
    """Inside, SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that one path saves the checkpoint."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum, frame):
        raise KeyboardInterrupt
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(parser, argv, body):
    """Parse, call `body(args)`, return the exit status; UsageError: one line and 2; interruption: how to go on."""
    args = parser.parse_args(argv)
    try:
        with terminable():
            return body(args)
    except UsageError as problem:
        parser.error(str(problem))
    except OSError as problem:                 # a full disk, or a folder where a file should be written
        parser.error(f"--out: cannot write to {str(args.out)!r} ({problem.strerror or problem})")
    except KeyboardInterrupt:
        how = f"the same command with --resume goes on from {args.out}" if hasattr(args, "resume") else "nothing is kept"
        sys.stderr.write(f"\n{parser.prog}: interrupted; {how}\n")
        return INTERRUPTED
