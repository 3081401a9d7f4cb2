"""Untrusted files: damaged or hostile ones are refused before they take memory or run code."""

import bz2
import gzip
import io
import pickle
import struct
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest

from e2fl.data.files.unpacking import extract, gunzip, gunzip_bytes, load_npz, read_idx
from e2fl.errors import DataError


def test_a_gzip_bomb_is_stopped_at_its_limit(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataError, match="more than the 1000 bytes"):
        gunzip(path, 1000)
    with pytest.raises(DataError, match="more than"):
        gunzip_bytes(path.read_bytes(), "bomb", 1000)


def test_half_a_gzip_file_is_refused():
    packed = gzip.compress(b"hello" * 1000)
    with pytest.raises(DataError, match=r"not a complete \.gz"):
        gunzip_bytes(packed[: len(packed) // 2], "half", 10_000)


def test_idx_files_of_bytes_and_of_whole_numbers():
    raw = bytes([0, 0, 8, 2]) + struct.pack(">II", 2, 3) + bytes(range(6))
    assert read_idx(raw, "x").tolist() == [[0, 1, 2], [3, 4, 5]]
    whole = bytes([0, 0, 12, 1]) + struct.pack(">I", 2) + struct.pack(">ii", -5, 70000)
    assert read_idx(whole, "x").tolist() == [-5, 70000]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0\0\x08",
        b"\0\0\x08\x01\0\0",
        b"\0\0\x0d\x01" + struct.pack(">I", 1) + bytes(4),
        b"\0\0\x08\x01" + struct.pack(">I", 2**31) + bytes(10),
        b"\0\0\x08\x01" + struct.pack(">I", 3) + bytes(4),
    ],
)
def test_idx_files_that_lie_about_their_size_are_refused(raw):
    with pytest.raises(DataError):
        read_idx(raw, "x")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_back_from_an_npz(tmp_path, save):
    big = np.arange(2**20, dtype=np.float32).reshape(1024, 1024)
    save(tmp_path / "a.npz", big=big, fortran=np.asfortranarray(big[:5]), words=np.array(["a", "bc"]), none=np.empty(0))
    found = load_npz(tmp_path / "a.npz", ("big", "fortran"), optional=("words", "none", "absent"))
    assert np.array_equal(found["big"], big)
    assert np.array_equal(found["fortran"], big[:5])
    assert found["words"].tolist() == ["a", "bc"]
    assert found["none"].shape == (0,)
    assert "absent" not in found


def test_a_stored_array_stays_on_disk(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((2048, 1024), dtype=np.uint8))
    assert isinstance(load_npz(tmp_path / "a.npz", ("x",))["x"], np.memmap)


def test_pickled_objects_are_refused_and_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    np.savez(tmp_path / "a.npz", x=np.array([Bomb()], dtype=object))
    with pytest.raises(DataError, match="pickled objects"):
        load_npz(tmp_path / "a.npz", ("x",))
    assert not (tmp_path / "ran").exists()


def _npz(path, header, body=b"", version=b"\x01\x00"):
    text = header.encode() if isinstance(header, str) else header
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + body)
    return path


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': ('a',)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'shape': (1,)}",
        "__import__('os').system('true')",
        "((((((((((" * 500,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,) * 70}",
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'1, ' * 70})}}",
        "{'descr': ('<f4', (1,)), 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<U999999999999', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': 'V4', 'fortran_order': False, 'shape': (1,)}",
        "[1, 2]",
    ],
)
def test_npz_headers_that_lie_or_are_code_are_refused(tmp_path, header):
    with pytest.raises(DataError, match=r"array 'x' of .*a\.npz"):
        load_npz(_npz(tmp_path / "a.npz", header, bytes(4)), ("x",))


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("<f4", f"(0, {2**70})"), ("<f4", f"(0, {2**40}, {2**40})"), ("<U0", f"({10**13},)"), ("<U0", "(7000000000,)")],
)
def test_shapes_that_need_no_bytes_but_that_numpy_cannot_make_are_refused(tmp_path, kind, shape):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}"
    with pytest.raises(DataError, match=r"array 'x' of .*a\.npz"):
        load_npz(_npz(tmp_path / "a.npz", header), ("x",))


def test_an_array_that_claims_more_bytes_than_its_file_has_is_refused(tmp_path):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2000000, 5)}"
    path = _npz(tmp_path / "a.npz", header, bytes(2000))
    raw, size = bytearray(path.read_bytes()), struct.pack("<I", 10 + len(header) + 40_000_000)
    central = raw.find(b"PK\x01\x02")
    raw[central + 20 : central + 28] = raw[18:26] = size * 2
    path.write_bytes(raw)
    with pytest.raises(
        DataError, match=r"a\.npz (has 40000000 bytes.*more than the file|is not a complete \.npz file)"
    ):
        load_npz(path, ("x",))


def test_an_npz_is_read_or_refused_whatever_is_damaged(tmp_path):
    path, rng = tmp_path / "a.npz", np.random.default_rng(0)
    np.savez(path, x=np.arange(60), y=np.array(["a", "b"]))
    good = path.read_bytes()
    for _ in range(500):
        raw = bytearray(good)
        for place in rng.integers(0, len(raw), 8):
            raw[place] = rng.integers(0, 256)
        path.write_bytes(raw)
        try:
            load_npz(path, ("x", "y"))
        except DataError as error:
            assert "a.npz" in str(error)  # noqa: PT017  # some stay readable


def test_an_array_that_is_missing_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with pytest.raises(DataError, match="no array 'y'; it has: x"):
        load_npz(tmp_path / "a.npz", ("x", "y"))


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04 nonsense", pickle.dumps([1, 2, 3])])
def test_what_is_no_archive_is_refused(tmp_path, raw):
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(DataError):
        load_npz(tmp_path / "a.npz", ("x",))


def test_a_damaged_array_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(10_000))
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(DataError):
        load_npz(tmp_path / "a.npz", ("x",))


def _tar(path, members, mode="w:bz2"):
    with tarfile.open(path, mode) as tar:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(body, str):
                info.type, info.linkname = tarfile.SYMTYPE, body
                tar.addfile(info)
            else:
                info.size = len(body)
                tar.addfile(info, io.BytesIO(body))
    return path


def test_only_the_named_files_come_out_of_an_archive_and_only_where_they_should(tmp_path):
    archive = _tar(tmp_path / "a.tar.bz2", {"../../evil": b"x", "deep/../../train.h5": b"train", "test.h5": b"test"})
    out = tmp_path / "out"
    extract(archive, {"train.h5": out / "train.h5", "test.h5": out / "test.h5"}, limit=100)
    assert (out / "train.h5").read_bytes() == b"train"
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["a.tar.bz2", "test.h5", "train.h5"]


def test_links_large_files_and_missing_files_of_an_archive_are_refused(tmp_path):
    link = _tar(tmp_path / "a.tar", {"train.h5": "/etc/passwd"}, "w")
    with pytest.raises(DataError, match=r"does not hold train\.h5"):
        extract(link, {"train.h5": tmp_path / "train.h5"}, limit=100)
    large = _tar(tmp_path / "b.tar", {"train.h5": bytes(1000)}, "w")
    with pytest.raises(DataError, match="100 is the limit"):
        extract(large, {"train.h5": tmp_path / "train.h5"}, limit=100)
    (tmp_path / "c.tar").write_bytes(b"nonsense" * 200)
    with pytest.raises(DataError, match="cannot be unpacked"):
        extract(tmp_path / "c.tar", {"train.h5": tmp_path / "train.h5"}, limit=100)
    assert not (tmp_path / "train.h5").exists()


def test_a_long_header_of_an_archive_takes_no_memory(tmp_path):
    wanted = {"train.h5": tmp_path / "train.h5"}
    for number, kind in enumerate((tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE)):
        info = tarfile.TarInfo("long")
        info.type, info.size = kind, 60_000_000
        path = tmp_path / f"{number}.tar.gz"
        with gzip.open(path, "wb", 1) as file:
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            for _ in range(60):
                file.write(b"a" * 1_000_000)
        tracemalloc.start()
        with pytest.raises(DataError, match="headers have more than"):
            extract(path, wanted, limit=100)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10_000_000


def test_an_archive_of_too_many_files_is_refused(tmp_path):
    header = tarfile.TarInfo("empty").tobuf()
    (tmp_path / "a.tar.bz2").write_bytes(bz2.compress(header * 10_000))
    with pytest.raises(DataError, match="headers have more than"):
        extract(tmp_path / "a.tar.bz2", {"train.h5": tmp_path / "train.h5"}, limit=100)


def test_long_names_and_large_files_of_an_archive_are_no_trouble(tmp_path):
    body = np.random.default_rng(0).bytes(5_000_001)
    for mode in ("w", "w:gz", "w:bz2"):
        path = _tar(tmp_path / "a.tar", {"a/" * 300 + "other": body, "b/" * 300 + "train.h5": body, "c.h5": b"c"}, mode)
        extract(path, {"train.h5": tmp_path / "train.h5", "c.h5": tmp_path / "c.h5"}, limit=10**7)
        assert (tmp_path / "train.h5").read_bytes() == body
        assert (tmp_path / "c.h5").read_bytes() == b"c"


def test_an_archive_is_unpacked_or_refused_whatever_is_damaged(tmp_path):
    good = bytearray(_tar(tmp_path / "a.tar", {"a/" * 80 + "train.h5": b"train", "test.h5": b"test"}, "w").read_bytes())
    path, rng = tmp_path / "b.tar", np.random.default_rng(0)
    for _ in range(300):
        raw = good.copy()
        for place in rng.integers(0, 3000, 3):
            raw[place] = rng.integers(0, 256)
        for start in range(0, 3072, 512):  # let the header count as whole, so that what it says is believed
            raw[start + 148 : start + 156] = b"%06o\0 " % (
                sum(raw[start : start + 512]) - sum(raw[start + 148 : start + 156]) + 256
            )
        path.write_bytes(raw)
        try:
            extract(path, {"train.h5": tmp_path / "train.h5"}, limit=100)
        except DataError as error:
            assert "b.tar" in str(error) or "train.h5" in str(error)  # noqa: PT017  # some stay readable
