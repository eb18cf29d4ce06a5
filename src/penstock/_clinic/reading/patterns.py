"""Small questions about syntax that several rules ask, and names of what workers should not share. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from penstock._clinic.reading.classes import Place
from penstock._clinic.reading.module import FUNCTIONS, Module

# What a dataset does for a sample, in a worker.
FETCHING = ("__getitem__", "__getitems__", "__iter__", "__next__", "get")

# Calls whose result is tied to one process: what it is, in a word for the message.
FILES = {
    "open": "file",
    "io.open": "file",
    "gzip.open": "gzip file",
    "bz2.open": "bz2 file",
    "lzma.open": "xz file",
    "bz2.BZ2File": "bz2 file",
    "gzip.GzipFile": "gzip file",
    "zipfile.ZipFile": "zip archive",
    "tarfile.open": "tar archive",
    "tarfile.TarFile": "tar archive",
    "h5py.File": "HDF5 file",
    "tables.open_file": "HDF5 file",
    "lmdb.open": "LMDB environment",
    "lmdb.Environment": "LMDB environment",
    "sqlite3.connect": "SQLite connection",
    "netCDF4.Dataset": "NetCDF file",
    "rasterio.open": "raster file",
    "soundfile.SoundFile": "sound file",
    "wave.open": "sound file",
    "cv2.VideoCapture": "video file",
    "os.open": "file descriptor",
}
CLIENTS = {
    "boto3.client": "boto3 client",
    "boto3.resource": "boto3 resource",
    "s3fs.S3FileSystem": "s3fs file system",
    "gcsfs.GCSFileSystem": "gcsfs file system",
    "grpc.insecure_channel": "gRPC channel",
    "grpc.secure_channel": "gRPC channel",
    "google.cloud.storage.Client": "Google Cloud client",
    "pymongo.MongoClient": "MongoDB client",
    "psycopg2.connect": "PostgreSQL connection",
    "psycopg.connect": "PostgreSQL connection",
    "pymysql.connect": "MySQL connection",
    "mysql.connector.connect": "MySQL connection",
    "MySQLdb.connect": "MySQL connection",
}
THREAD_LOCKS = {
    "threading.Lock": "lock",
    "threading.RLock": "lock",
    "threading.Condition": "condition",
    "threading.Event": "event",
    "threading.Semaphore": "semaphore",
    "threading.Thread": "thread",
    "threading.local": "thread-local object",
    "_thread.allocate_lock": "lock",
}
PROCESS_LOCKS = frozenset({"Lock", "RLock", "Semaphore", "BoundedSemaphore"})
MULTIPROCESSING = ("multiprocessing", "torch.multiprocessing", "multiprocess")
RANDOM = {
    "numpy.random.default_rng": "numpy Generator",
    "numpy.random.Generator": "numpy Generator",
    "numpy.random.RandomState": "numpy RandomState",
    "numpy.random.mtrand.RandomState": "numpy RandomState",
    "random.Random": "random.Random",
    "torch.Generator": "torch.Generator",
}


def calls(place: Place) -> Iterator[ast.Call]:
    """The calls in a function's own body."""
    yield from (node for node in place.nodes() if isinstance(node, ast.Call))


# Methods that answer with the thing itself, or with one that lives by it. What others answer with is data.
SAME_THING = frozenset(
    {"manual_seed", "__enter__", "start", "cursor", "begin", "makefile", "client", "resource", "pubsub"}
)


def made_by(node: ast.AST | None, module: Module) -> tuple[str, ast.Call] | None:
    """The full name of the call that makes a value; of `torch.Generator().manual_seed(0)` the first.

    `Path(p).open()` is `open`; `open(p).readlines()` is made by none: it is data.
    """
    while isinstance(node, ast.Call):
        name = module.dotted(node.func)
        if name:
            return name, node
        if not isinstance(node.func, ast.Attribute):
            return None
        if node.func.attr == "open":
            return "open", node
        if node.func.attr not in SAME_THING:
            return None
        node = node.func.value
    return None


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """What a call passes by one keyword."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def is_own_call(call: ast.Call, *methods: str) -> str | None:
    """The attribute `x` of `self.x.method(…)`, if it is such a call."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in methods:
        return None
    value = func.value
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "self":
        return value.attr
    return None


def is_none(node: ast.AST | None) -> bool:
    """Whether it is None, or nothing."""
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def names_in(node: ast.AST) -> Iterator[str]:
    """Every name read in an expression or statement."""
    yield from (
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    )


def is_local(node: ast.AST, module: Module) -> bool:
    """Whether a function or class is defined inside a function, so that no other process can import it."""
    return any(isinstance(each, FUNCTIONS) for each in module.above(node))


def is_process_lock(name: str) -> bool:
    """Whether a full name is a lock that processes share."""
    base, _, last = name.rpartition(".")
    return last in PROCESS_LOCKS and (base in MULTIPROCESSING or base.endswith(("Manager", "mp")))


def a(thing: str) -> str:
    """A name with its article, by its sound."""
    return f"an {thing}" if thing.startswith(("HDF5", "LMDB", "SQLite", "s3fs", "xz")) else f"a {thing}"


LONGEST = 72  # characters of a line that is quoted


def quoted(module: Module, node: ast.AST) -> str:
    """The line on which a node stands, for evidence."""
    number = int(getattr(node, "lineno", 0))
    line = module.lines[number - 1].strip() if 0 < number <= len(module.lines) else ""
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
