"""What all commands share: options that say what is allowed, progress, interruption, the output folder."""

import io
import os
import signal
import threading
from pathlib import Path

import pytest

from gsref import commands
from gsref.commands import (FAILED_CLAIM, INTERRUPTED, OK, USAGE, Parser, Progress, UsageError, add_run_options,
                            integer_option, open_checkpoint, option, output_folder, positive_option, run, terminable,
                            unusable)


def parser():
    made = Parser(prog="demo")
    add_run_options(made, "demo-out")
    made.add_argument("--D", type=integer_option(2, 64), nargs="+", default=[4])
    made.add_argument("--eps", type=positive_option(1.0), default=0.1)
    made.add_argument("--mode", choices=("full", "position_only"), default="full")
    return made


def test_defaults():
    args = parser().parse_args([])
    assert (args.out, args.quick, args.strict, args.resume, args.seed) == (Path("demo-out"), False, False, False, 0)


def test_given_options():
    args = parser().parse_args("--out x --quick --strict --resume --seed 7 --D 2 64 --eps 1e-3".split())
    assert (args.out, args.quick, args.strict, args.resume, args.seed) == (Path("x"), True, True, True, 7)
    assert args.D == [2, 64] and args.eps == 1e-3


@pytest.mark.parametrize("argv, parts", [
    (["--D", "1"], ["--D", "'1'", "an integer from 2 to 64"]),
    (["--D", "4", "x"], ["--D", "'x'", "an integer from 2 to 64"]),
    (["--D", "4.5"], ["--D", "'4.5'"]), (["--D", "4\n5"], ["--D", "an integer from 2 to 64"]),
    (["--seed", "-1"], ["--seed", "'-1'", "an integer >= 0"]),
    (["--eps", "0"], ["--eps", "'0'", "a number > 0 and <= 1"]), (["--eps", "nan"], ["--eps", "'nan'"]),
    (["--eps", "2"], ["--eps", "'2'"]), (["--eps", "1e999"], ["--eps", "'1e999'"]), (["--eps", "x"], ["--eps", "'x'"]),
    (["--mode", "fast"], ["--mode", "'fast'", "full", "position_only"]),
    (["--out"], ["--out", "expected one argument"]), (["--nonsense"], ["--nonsense"]), (["a\nb"], ["unrecognized"]),
])
def test_bad_option_is_one_line_and_status_two(capsys, argv, parts):
    with pytest.raises(SystemExit) as stop:
        run(parser(), argv, lambda args: pytest.fail("the body ran"))
    out, err = capsys.readouterr()
    assert stop.value.code == USAGE == 2 and out == ""
    assert err.startswith("demo: ") and err.count("\n") == 1 and err.endswith("\n")
    assert all(part in err for part in parts), err


def test_open_bounds_of_options():
    assert integer_option(1)("12") == 12 and positive_option()("1e300") == 1e300
    for convert, text, allowed in ((integer_option(1), "0", "an integer >= 1"),
                                   (positive_option(), "inf", "a number > 0")):
        with pytest.raises(Exception, match=f"^got '{text}', expected {allowed}$"):
            convert(text)


def test_option_does_not_hide_other_errors():
    def broken(text):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        option(broken, "anything")("1")


@pytest.mark.parametrize("status", [OK, FAILED_CLAIM])
def test_run_returns_the_status_of_its_body(status):
    seen = []
    assert run(parser(), ["--seed", "3"], lambda args: seen.append(args.seed) or status) == status and seen == [3]


def test_usage_error_in_the_body_is_one_line(capsys):
    def body(args):
        raise UsageError("--D: got 3, expected an even number")
    with pytest.raises(SystemExit) as stop:
        run(parser(), [], body)
    assert stop.value.code == USAGE and capsys.readouterr().err == "demo: --D: got 3, expected an even number\n"


def test_other_errors_are_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        run(parser(), [], lambda args: 1 / 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_says_how_to_go_on(capsys, number):
    before = signal.getsignal(signal.SIGTERM)
    saved = []

    def body(args):
        try:
            os.kill(os.getpid(), number)
            signal.pause() if not saved else None
        finally:
            saved.append("checkpoint")
    assert run(parser(), ["--out", "here"], body) == INTERRUPTED and saved == ["checkpoint"]
    err = capsys.readouterr().err
    assert "interrupted" in err and "--resume" in err and "here" in err
    assert signal.getsignal(signal.SIGTERM) is before


def test_interruption_of_a_run_without_checkpoint_does_not_promise_one(capsys):
    made = Parser(prog="demo")
    add_run_options(made, "demo-out", resume=False)

    def body(args):
        raise KeyboardInterrupt
    assert run(made, [], body) == INTERRUPTED
    err = capsys.readouterr().err
    assert "interrupted; nothing is kept" in err and "resume" not in err
    with pytest.raises(SystemExit):
        made.parse_args(["--resume"])


def test_terminable_works_in_a_thread():
    ran = []

    def work():
        with terminable():
            ran.append(True)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=10)
    assert ran == [True]


# the output folder

def test_output_folder_is_made_and_left_empty(tmp_path):
    path = output_folder(tmp_path / "a" / "b")
    assert path.is_dir() and list(path.iterdir()) == []
    assert output_folder(path) == path


def test_output_folder_that_cannot_be_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("keep")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="^--out: cannot write to .*file.*, expected a writable folder$"):
            output_folder(path)
    assert (tmp_path / "file").read_text() == "keep"


def test_folder_that_refuses_files_is_a_usage_error(tmp_path, monkeypatch):
    def refuse(dir):                             # not chmod: some users may write everywhere
        raise PermissionError(13, "Permission denied", str(dir))
    monkeypatch.setattr(commands.tempfile, "TemporaryFile", refuse)
    with pytest.raises(UsageError, match="^--out: cannot write to .* .Permission denied., expected a writable folder$"):
        output_folder(tmp_path)


# progress

class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(commands, "time", made)
    return made


def test_checkpoint_is_opened_empty_and_found_again(tmp_path, capsys):
    fresh, again = (parser().parse_args(["--out", str(tmp_path), *more]) for more in ([], ["--resume", "--strict"]))
    assert open_checkpoint(again)[1] == {} and "no checkpoint in --out: starting anew" in capsys.readouterr().err
    checkpoint, kept = open_checkpoint(fresh)
    assert kept == {} and capsys.readouterr().err == ""
    checkpoint.save({"x": [1.0, 2.0]})
    assert open_checkpoint(fresh)[1] == {}                        # without --resume it is not read
    assert list(open_checkpoint(again)[1]["x"]) == [1.0, 2.0]     # --out, --resume, --strict change no number


@pytest.mark.parametrize("more, ignore, says", [
    (["--seed", "1"], (), "seed: '0' there, '1' now"),
    (["--D", "8", "--eps", "0.2"], ("D",), "eps: '0.1' there, '0.2' now"),
    (["--D", "8"], ("D",), None),
])
def test_checkpoint_of_other_options(tmp_path, more, ignore, says):
    open_checkpoint(parser().parse_args(["--out", str(tmp_path)]), ignore)[0].save({"x": [1.0]})
    other = parser().parse_args(["--out", str(tmp_path), "--resume", *more])
    if says is None:
        assert list(open_checkpoint(other, ignore)[1]) == ["x"]
    else:
        with pytest.raises(UsageError, match=says):
            open_checkpoint(other, ignore)


def test_damaged_checkpoint_is_a_usage_error(tmp_path):
    (tmp_path / "checkpoint.npz").write_bytes(b"PK not a zip")
    args = parser().parse_args(["--out", str(tmp_path), "--resume"])
    with pytest.raises(UsageError, match="^--resume: .*checkpoint.npz: not a readable checkpoint .*delete it"):
        open_checkpoint(args)
    args.resume = False
    assert str(unusable(open_checkpoint(args)[0], "no loss")).endswith("(no loss); delete it to start anew")


def test_progress_elsewhere_is_a_plain_line_now_and_then(clock):
    stream = io.StringIO()
    progress = Progress(stream, every=5.0)
    for k in range(101):
        progress.show(f"step {k}", k / 100)
        clock.now += 0.25
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5 and "\r" not in stream.getvalue()            # 25 s, one line every 5 s
    assert lines[0] == "step 20   20 %  20 s left" and lines[-1] == "step 100  100 %  25 s"
    progress.close()
    assert stream.getvalue().splitlines() == lines


def test_progress_on_a_terminal_rewrites_one_line(clock):
    stream = Terminal()
    progress = Progress(stream)
    progress.show("a long text", 0.5, force=True)
    clock.now += 1.0
    progress.show("short", 0.5)
    clock.now += 0.05
    progress.show("too soon", 0.5)
    progress.close()
    text = stream.getvalue()
    assert "\n" not in text and "too soon" not in text
    first, second, blank, rest = text.split("\r")[1:]
    assert len(second) >= len(first) and second.startswith("short") and not blank.strip() and rest == ""
    assert len(blank) >= len(second.rstrip())


def test_progress_does_not_guess_too_early(clock):
    stream = io.StringIO()
    progress = Progress(stream, every=0.0)
    progress.show("start", 0.0)
    clock.now += 10
    progress.show("slow", 0.005)
    progress.show("well under way", 0.25)
    lines = stream.getvalue().splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["estimating time", "estimating time", "30 s left"]
