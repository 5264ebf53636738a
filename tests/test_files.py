"""Files are whole or not there, whatever happens while writing; damaged ones are called so when they are read."""

import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from gsref.files import Checkpoint, DamagedFile, write_arrays, write_atomic, write_text

OPTIONS = {"D": [4, 6], "eta": 0.5, "mode": "full"}
ARRAYS = {"step": np.arange(5), "order": np.linspace(0, 1, 12).reshape(2, 6),
          "name": np.array("full"), "done": np.array(True)}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_text_is_utf8_and_replaces_what_was_there(tmp_path):
    path = tmp_path / "report.json"
    write_text(path, "long old text")
    write_text(str(path), "größer\n")
    assert path.read_bytes() == "größer\n".encode() and names(tmp_path) == ["report.json"]


def test_mode_is_that_of_an_ordinary_file(tmp_path):
    write_text(tmp_path / "ours", "x")
    (tmp_path / "theirs").write_text("x")
    assert stat.S_IMODE(os.stat(tmp_path / "ours").st_mode) == stat.S_IMODE(os.stat(tmp_path / "theirs").st_mode)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_in_the_middle_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "file"
    write_text(path, "old")

    def write(file):
        file.write(b"half of the new")
        raise error
    with pytest.raises(error):
        write_atomic(path, write)
    assert path.read_text() == "old" and names(tmp_path) == ["file"]
    with pytest.raises(error):
        write_atomic(tmp_path / "new", write)
    assert names(tmp_path) == ["file"]


def test_a_killed_process_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")
    code = ("import os, signal, sys\nfrom gsref.files import write_atomic\n"
            "def write(file):\n    file.write(b'new' * 10000); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
            f"write_atomic({str(path)!r}, write)\n")
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode != 0
    assert path.read_text() == "old"


def test_a_target_that_cannot_be_replaced_leaves_no_part(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_text(tmp_path / "folder", "x")
    with pytest.raises(OSError):
        write_text(tmp_path / "missing" / "file", "x")
    assert names(tmp_path) == ["folder"]


def test_arrays_come_back_without_pickle(tmp_path):
    write_arrays(tmp_path / "a.npz", ARRAYS)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert set(file.files) == set(ARRAYS)
        for name, array in ARRAYS.items():
            assert file[name].dtype == array.dtype
            np.testing.assert_array_equal(file[name], array)


@pytest.mark.parametrize("bad", [np.array([None]), [1, None], np.array([{}])])
def test_objects_are_refused_by_name(tmp_path, bad):
    with pytest.raises(TypeError, match="^steps: got an object array, expected numbers or text$"):
        write_arrays(tmp_path / "a.npz", {"steps": bad})
    assert names(tmp_path) == []


# checkpoints

def saved(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint.npz", OPTIONS)
    checkpoint.save(ARRAYS)
    return checkpoint


def test_checkpoint_gives_back_what_it_was_given_bit_for_bit(tmp_path):
    checkpoint = saved(tmp_path)
    loaded = Checkpoint(tmp_path / "checkpoint.npz", dict(reversed(OPTIONS.items()))).load()     # in any order
    assert set(loaded) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert loaded[name].dtype == array.dtype and loaded[name].tobytes() == array.tobytes()
    checkpoint.remove()
    assert names(tmp_path) == [] and checkpoint.load() is None
    checkpoint.remove()


def test_checkpoint_of_other_options_is_refused_with_the_difference(tmp_path):
    saved(tmp_path)
    other = Checkpoint(tmp_path / "checkpoint.npz", {"D": [4, 6], "eta": 0.25, "seed": 1})
    with pytest.raises(ValueError, match="other options .eta: 0.5 there, 0.25 now; mode: 'full' there, None now; seed"):
        other.load()


def damaged(checkpoint, content):
    checkpoint.path.write_bytes(content)
    try:
        loaded = checkpoint.load()
    except DamagedFile as problem:
        assert str(checkpoint.path) in str(problem) and "delete it to start anew" in str(problem)
        assert "\n" not in str(problem)
        return True
    # zip keeps some things twice and checks others not at all (times, flags): then the content must be the right one
    assert set(loaded) == set(ARRAYS) and all(loaded[k].tobytes() == a.tobytes() for k, a in ARRAYS.items())
    return False


def test_a_checkpoint_cut_anywhere_is_called_damaged(tmp_path):
    checkpoint = saved(tmp_path)
    whole = checkpoint.path.read_bytes()
    assert all(damaged(checkpoint, whole[:size]) for size in range(len(whole)))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_checkpoint_with_a_wrong_byte_is_called_damaged_or_is_right(tmp_path, data):
    checkpoint = saved(tmp_path)
    whole = bytearray(checkpoint.path.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    try:
        damaged(checkpoint, bytes(whole))
    except ValueError as problem:                # a wrong byte may make a name of an option another name, no more
        assert "other options" in str(problem)


@pytest.mark.parametrize("write", [
    lambda path: np.save(path.open("wb"), np.arange(3)), lambda path: path.write_bytes(b"PK\x03\x04"),
    lambda path: np.savez(path.open("wb"), step=np.arange(3)),
    lambda path: np.savez(path.open("wb"), __options__=np.array("not json")),
    lambda path: np.savez(path.open("wb"), __options__=np.array("[1, 2]")),
    lambda path: np.savez(path.open("wb"), a=np.array([None]),
                          __options__=np.array(json.dumps(OPTIONS, sort_keys=True))),
    lambda path: path.mkdir()], ids=["npy", "zip head", "no options", "no json", "a list", "pickle", "folder"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")           # of the open() above
def test_other_files_are_called_damaged(tmp_path, write):
    checkpoint = Checkpoint(tmp_path / "checkpoint.npz", OPTIONS)
    write(checkpoint.path)
    with pytest.raises(DamagedFile, match="not a readable checkpoint"):
        checkpoint.load()


def test_a_failure_while_saving_keeps_the_checkpoint_before(tmp_path):
    checkpoint = saved(tmp_path)
    with pytest.raises(TypeError):
        checkpoint.save({"step": np.array([None])})
    assert set(checkpoint.load()) == set(ARRAYS) and names(tmp_path) == ["checkpoint.npz"]
