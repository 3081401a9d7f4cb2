"""The files of the known data sets: names, checksums and mirrors."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from e2fl.data.files.places import data_directory
from e2fl.data.files.unpacking import gunzip
from e2fl.errors import DataError

_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_QMNIST = ("https://raw.githubusercontent.com/facebookresearch/qmnist/master/",)
_ADULT = ("https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",)
_TFF = ("https://storage.googleapis.com/tff-datasets-public/", "https://fedml.s3-us-west-1.amazonaws.com/")


@dataclass(frozen=True)
class File:
    """One file as published."""

    name: str
    sha256: str | None  # None: none is published
    size: int  # bytes; an upper limit if there is no checksum
    mirrors: tuple[str, ...]  # URLs of folders that hold it
    members: tuple[str, ...] = ()  # the files to extract, if it is an archive

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(mirror + self.name for mirror in self.mirrors)


@dataclass(frozen=True)
class Source:
    """The files of one data set, all in one folder."""

    name: str  # also the name of the folder
    about: str
    licence: str
    files: tuple[File, ...]
    advice: str = ""

    def file(self, name: str) -> File:
        return next(file for file in self.files if file.name == name)

    def locate(self, name: str, directory: str | None = None) -> Path | None:
        """Return the path of a file, plain or gzipped, in the data directory or this data set's folder there."""
        home = data_directory(directory)
        for folder in (home / self.name, home):
            for path in (folder / name, folder / f"{name}.gz"):
                if path.is_file():
                    return path
        return None

    def archive(self, file: File, home: Path) -> Path | None:
        """Return the path of an archive that has not been unpacked."""
        places = (home / self.name / file.name, home / file.name)
        return next((path for path in places if path.is_file()), None)

    def read(self, name: str, directory: str | None = None) -> bytes:
        """Return the contents of a file, after checking its checksum."""
        path = self.locate(name, directory)
        if path is None:
            raise DataError(self.where_to_put(name, directory))
        return contents(self.file(name), path)

    def where_to_put(self, name: str, directory: str | None = None) -> str:
        """Return what to do about a missing file."""
        place = data_directory(directory) / self.name / name
        file = self.file(name)
        return (
            f"{place} is missing; run `e2fl data get {self.name}`, or put it there yourself "
            f"(from {file.urls[0]}{', SHA-256 ' + file.sha256 if file.sha256 else ''}), "
            "or set E2FL_DATA or data.dir to the folder that has it"
        )


def contents(file: File, path: Path) -> bytes:
    """Return the contents of a file, or raise an error unless it is exactly the published one."""
    if path.name == f"{file.name}.gz":
        raw = gunzip(path, file.size)
    else:
        if path.stat().st_size > file.size:
            raise DataError(f"{path} is larger than the {file.size} bytes it should have")
        raw = path.read_bytes()
    if hashlib.sha256(raw).hexdigest() != file.sha256:
        raise DataError(f"{path} is damaged or not the published file: its SHA-256 differs")
    return raw


def _published(mirrors: tuple[str, ...], *files: tuple[str, str, int]) -> tuple[File, ...]:
    """Return files by name, SHA-256 and size, all from these mirrors."""
    return tuple(File(name, digest, size, mirrors) for name, digest, size in files)


MNIST = Source(
    "mnist",
    "60,000 and 10,000 images of digits, for fair_mnist_rotate and mnist_writers",
    "CC BY-SA 3.0 (as commonly given; LeCun, Cortes, Burges)",
    _published(
        _MNIST,
        ("train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        ("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        ("t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        ("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    ),
)

QMNIST = Source(
    "qmnist",
    "the writer of each digit of MNIST, for mnist_writers",
    "BSD style (facebookresearch/qmnist)",
    _published(
        _QMNIST,
        ("qmnist-train-labels-idx2-int.gz", "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f", 463024),
        ("qmnist-test-labels-idx2-int.gz", "9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06", 526800),
    ),
)

ADULT = Source(
    "adult",
    "48,842 people and whether they earn more than 50,000 dollars",
    "CC BY 4.0 (UCI; Becker and Kohavi 1996)",
    _published(
        _ADULT,
        ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", 3974305),
        ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", 2003153),
    ),
)

FEMNIST = Source(
    "femnist",
    "671,585 and 77,483 images of digits and letters by 3,400 writers (TensorFlow Federated's copy of LEAF)",
    "images from NIST Special Database 19 (US government); LEAF is BSD 2-Clause",
    (File("fed_emnist.tar.bz2", None, 400 * 2**20, _TFF, ("fed_emnist_train.h5", "fed_emnist_test.h5")),),
    advice="or LEAF's all_data_*.json, converted with `e2fl data convert FOLDER femnist.npz`",
)

SOURCES: dict[str, Source] = {source.name: source for source in (MNIST, QMNIST, ADULT, FEMNIST)}
