"""Images: CIFAR-10 batches that the test writes, digits of a package that the test fakes, drawn ones; bad files."""

import gzip
import pickle
import struct

import numpy as np
import pytest

from gsref.transfer import images
from gsref.transfer.images import UnusableImages, available, cifar, drawn, grey_small, installed_digits, read_batch


def write_batch(path, classes, seed=0, protocol=2):
    """A batch in the published format: a pickled dictionary with keys as bytes; image k is brighter for larger class."""
    rng = np.random.default_rng(seed)
    data = (20 * np.asarray(classes)[:, None] + rng.integers(0, 20, (len(classes), 3072))).astype(np.uint8)
    batch = {b"batch_label": b"training batch", b"labels": list(classes), b"data": data,
             b"filenames": [b"x.png"] * len(classes)}
    path.write_bytes(pickle.dumps(batch, protocol=protocol))
    return data


@pytest.fixture
def folder(tmp_path):
    for k in (1, 2):
        write_batch(tmp_path / f"data_batch_{k}", [0, 6, 1, 7, 3] * 6, seed=k)
    write_batch(tmp_path / "test_batch", [0, 6, 1, 7] * 3, seed=3)
    return tmp_path


def test_cifar_batches_are_read(folder):
    first, second = cifar(folder, np.random.default_rng(0))
    assert first.classes == ("airplane", "frog") and second.classes == ("automobile", "horse")
    assert first.x.shape == (24, 64) and first.x_test.shape == (6, 64) and str(folder) in first.source
    assert (first.y == np.repeat([1, -1], 12)).all()
    assert first.x[first.y == 1].max() < first.x[first.y == -1].min()    # class 6 is brighter than class 0, pixel by pixel


def test_pixels_are_in_their_places(tmp_path):
    data = write_batch(tmp_path / "data_batch_1", [0, 6])
    pixels, classes = read_batch(tmp_path / "data_batch_1")
    assert classes.tolist() == [0, 6] and pixels.shape == (2, 32, 32, 3)
    assert pixels[1, 5, 7, 2] == data[1, 2 * 1024 + 5 * 32 + 7]          # channel, row, column: as published
    block = [data[1, c * 1024 + row * 32 + column] for c in range(3) for row in range(4, 8) for column in range(8, 12)]
    assert grey_small(pixels)[1, 1 * 8 + 2] == pytest.approx(np.mean(block) / 255, rel=1e-12)


def test_without_a_test_batch_images_are_kept_for_testing(folder):
    (folder / "test_batch").unlink()
    first = cifar(folder, np.random.default_rng(0))[0]
    assert len(first.y) == 18 and len(first.y_test) == 6
    assert not {row.tobytes() for row in first.x} & {row.tobytes() for row in first.x_test}


class Python2(pickle._Pickler):
    """Pickles as Python 2 did, in which the published batches were written: text and bytes are one type, BINSTRING."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_bytes(self, value):
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)
    dispatch[bytes] = save_bytes

    def save_str(self, value):
        self.save_bytes(value.encode())
    dispatch[str] = save_str


def test_a_batch_as_python_2_wrote_it_is_read(tmp_path):
    data = write_batch(tmp_path / "data_batch_1", [0, 6])
    with open(tmp_path / "data_batch_1", "wb") as file:
        Python2(file, protocol=2).dump({"data": data, "labels": [0, 6], "batch_label": "training batch 1 of 5"})
    content = (tmp_path / "data_batch_1").read_bytes().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    assert b"numpy.core.multiarray\n_reconstruct" in content and b"_codecs" not in content
    (tmp_path / "data_batch_1").write_bytes(content)
    pixels, classes = read_batch(tmp_path / "data_batch_1")
    assert classes.tolist() == [0, 6] and (pixels[1, :, :, 0].reshape(-1) == data[1, :1024]).all()


@pytest.mark.parametrize("command", [b"cos\nsystem\n(S'touch written'\ntR.", b"cbuiltins\neval\n(S'1'\ntR.",
                                     b"(S'touch written'\nios\nsystem\n.", b"cnumpy\nload\n(S'x'\ntR.",
                                     b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93\x8c\x011\x85R."])
def test_every_way_to_name_a_function_is_refused(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(command)
    with pytest.raises(UnusableImages, match="data_batch_1: contains .*expected arrays, numbers and text only"):
        read_batch(tmp_path / "data_batch_1")
    assert not (tmp_path / "written").exists()


def test_a_batch_cut_or_altered_anywhere_is_refused_or_read(tmp_path):
    path = tmp_path / "data_batch_1"
    write_batch(path, [0, 6])
    whole = path.read_bytes()
    for k in [*range(0, 400, 7), *range(400, len(whole), 997)]:
        for content in (whole[:k], whole[:k] + bytes([whole[k] ^ 0xFF]) + whole[k + 1:]):
            path.write_bytes(content)
            try:
                pixels, classes = read_batch(path)
            except UnusableImages as refusal:
                assert str(path) in str(refusal) and len(str(refusal).splitlines()) == 1
            else:
                assert pixels.shape == (2, 32, 32, 3) and classes.shape == (2,)


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    class Attack:
        def __reduce__(self):
            return (open, (str(tmp_path / "written"), "w"))
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": Attack(), b"labels": []}))
    with pytest.raises(UnusableImages, match="data_batch_1: contains .*open, expected arrays"):
        cifar(tmp_path, np.random.default_rng(0))
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize("content, text", [
    (b"", "not a CIFAR-10 python batch"), (b"\x80\x02garbage", "not a CIFAR-10 python batch"),
    (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8)}), "not a CIFAR-10 python batch"),
    (pickle.dumps({b"data": np.zeros((2, 100), np.uint8), b"labels": [0, 6]}), r"got data of shape \(2, 100\)"),
    (pickle.dumps({b"data": np.zeros((2, 3072)), b"labels": [0, 6]}), "dtype float64"),
    (pickle.dumps({b"data": np.full((2, 3072), None), b"labels": [0, 6]}), "dtype object"),
    (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}), "expected 2 labels from 0 to 9"),
    (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [True, False]}), "expected 2 labels from 0 to 9"),
    (pickle.dumps([1, 2]), "not a CIFAR-10 python batch"), (pickle.dumps({3: 4, b"data": 1}), "not a CIFAR-10 python batch"),
    (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 12]}), "expected 2 labels from 0 to 9"),
    (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 6]}), "1 and 1 images|expected 2 or more"),
])
def test_bad_batches_are_refused(tmp_path, content, text):
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(UnusableImages, match=text):
        cifar(tmp_path, np.random.default_rng(0))


def test_a_folder_in_the_place_of_a_batch_is_refused(tmp_path):
    (tmp_path / "data_batch_1").mkdir()
    with pytest.raises(UnusableImages, match="data_batch_1: Is a directory"):
        cifar(tmp_path, np.random.default_rng(0))


def test_missing_folders_and_batches_are_refused(tmp_path):
    with pytest.raises(UnusableImages, match="no such folder"):
        cifar(tmp_path / "absent", np.random.default_rng(0))
    with pytest.raises(UnusableImages, match="no data_batch_1"):
        cifar(tmp_path, np.random.default_rng(0))


def test_digits_of_an_installed_package_are_found(tmp_path, monkeypatch):
    data = tmp_path / "sklearn" / "datasets" / "data"
    data.mkdir(parents=True)
    (tmp_path / "sklearn" / "__init__.py").write_text("")
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.integers(0, 17, (80, 64)), np.arange(80) % 10])
    with gzip.open(data / "digits.csv.gz", "wt") as file:
        np.savetxt(file, table, delimiter=",", fmt="%d")
    spec = images.importlib.util.spec_from_file_location("sklearn", tmp_path / "sklearn" / "__init__.py",
                                                         submodule_search_locations=[str(tmp_path / "sklearn")])
    monkeypatch.setattr(images.importlib.util, "find_spec", lambda name: spec)
    first, second = installed_digits()
    assert first.classes == ("digit 3", "digit 8") and len(first.y) + len(first.y_test) == 16
    assert first.x.max() <= 1 and "scikit-learn" in first.source
    assert available(None, rng)[0].source == first.source
    (data / "digits.csv.gz").unlink()
    assert installed_digits() is None


def test_without_any_images_they_are_drawn_and_it_says_so(monkeypatch):
    monkeypatch.setattr(images.importlib.util, "find_spec", lambda name: None)
    first, second = available(None, np.random.default_rng(0))
    assert "drawn by this run" in first.source and first.classes == ("lying bar", "standing bar")
    again = drawn(np.random.default_rng(0))[0]
    assert (again.x == first.x).all() and first.x.shape == (900, 64) and first.x_test.shape == (300, 64)
