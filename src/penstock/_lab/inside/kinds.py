"""What kind of thing an object is, for workers: Thing's kinds. Looks at types only, imports none of them."""

from __future__ import annotations

import io
import random
import sys
import types
from typing import Any

# Prefix of the type's module, and words of which one must be in the type's name (none: any name).
_BY_MODULE: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("zipfile", ("ZipFile", "ZipExtFile"), "archive"),
    ("tarfile", ("TarFile",), "archive"),
    ("numpy.lib", ("NpzFile",), "archive"),
    ("gzip", ("GzipFile",), "open-file"),
    ("bz2", ("BZ2File",), "open-file"),
    ("lzma", ("LZMAFile",), "open-file"),
    ("tempfile", ("TemporaryFile", "SpooledTemporaryFile"), "open-file"),
    ("cv2", ("VideoCapture",), "open-file"),
    ("av", ("InputContainer",), "open-file"),
    ("decord", ("VideoReader", "AudioReader"), "open-file"),
    ("mmap", ("mmap",), "mapping"),  # whose position is a process's own, unlike a file's
    ("h5py", (), "hdf5"),
    ("tables", (), "hdf5"),
    ("netCDF4", (), "hdf5"),
    ("lmdb", (), "lmdb"),
    ("sqlite3", (), "database"),
    ("psycopg", (), "database"),
    ("pymongo", (), "database"),
    ("redis", (), "database"),
    ("pymysql", (), "database"),
    ("mysql", (), "database"),
    ("sqlalchemy", ("Engine", "Connection", "Session"), "database"),
    ("duckdb", (), "database"),
    ("multiprocessing.synchronize", (), "mp-lock"),
    ("multiprocessing.managers", ("AcquirerProxy",), "mp-lock"),
    ("multiprocessing.sharedctypes", ("Synchronized",), "mp-lock"),
    ("multiprocessing.queues", (), "mp-lock"),
    ("_thread", ("lock", "RLock"), "lock"),
    ("_thread", ("_local",), "thread-local"),
    ("_threading_local", ("local",), "thread-local"),
    ("threading", ("Lock", "Condition", "Semaphore", "Event", "Barrier"), "lock"),
    ("threading", ("Thread", "Timer"), "thread"),
    ("concurrent.futures", ("Executor",), "thread"),
    ("multiprocessing.pool", (), "thread"),
    ("socket", ("socket",), "socket"),
    ("ssl", ("SSLSocket", "SSLContext"), "socket"),
    ("boto3", (), "client"),
    ("botocore", (), "client"),
    ("aiobotocore", (), "client"),
    ("s3fs", (), "client"),
    ("gcsfs", (), "client"),
    ("fsspec", ("FileSystem",), "client"),
    ("google.cloud", (), "client"),
    ("grpc", (), "client"),
    ("aiohttp", (), "client"),
    ("requests", ("Session",), "client"),
    ("httpx", ("Client",), "client"),
    ("urllib3", ("PoolManager", "ConnectionPool"), "client"),
    ("http.client", ("HTTP",), "client"),
    ("azure", (), "client"),
    ("paramiko", (), "client"),
    ("asyncio", ("Loop",), "client"),
    ("tokenizers", (), "tokenizer"),
    ("transformers", ("Tokenizer",), "tokenizer"),
    ("sentencepiece", (), "tokenizer"),
)
_BUILT_IN = {
    "_io.TextIOWrapper": "open-file",
    "_io.BufferedReader": "open-file",
    "_io.BufferedWriter": "open-file",
    "_io.BufferedRandom": "open-file",
    "_io.FileIO": "open-file",
    "builtins.Environment": "lmdb",
    "builtins.Transaction": "lmdb",
    "builtins.generator": "generator",
    "builtins.async_generator": "generator",
    "builtins.coroutine": "generator",
    "builtins.module": "module",
}
# Types that a user derives from, and whose instances are still of that kind.
_BASES: tuple[tuple[Any, str], ...] = (
    (types.ModuleType, "module"),
    (types.GeneratorType, "generator"),
    (io.FileIO, "open-file"),
)


def kind_of(value: Any) -> str:
    """Thing's kind, or "" for what is of no interest."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    known = _BUILT_IN.get(name)
    if known is not None:
        return known
    if kind is types.FunctionType:
        return _of_function(value)
    found = _of_numbers(value)
    if found:
        return found
    for cls in kind.__mro__[:-1]:
        by_module = _by_module(cls)
        if by_module:
            return by_module
    if isinstance(value, type):
        return "local-class" if "<locals>" in value.__qualname__ else ""
    return next((word for base, word in _BASES if isinstance(value, base)), "")


def _by_module(kind: type) -> str:
    module = kind.__module__ or ""
    for prefix, words, word in _BY_MODULE:
        is_its = module == prefix or module.startswith((prefix + ".", prefix + "_"))
        if is_its and (not words or any(each in kind.__name__ for each in words)):
            return word
    return ""


def _of_function(value: types.FunctionType) -> str:
    if value.__name__ == "<lambda>":
        return "lambda"
    return "local-function" if "<locals>" in value.__qualname__ else ""


def _of_numbers(value: Any) -> str:
    torch: Any = sys.modules.get("torch")
    numpy: Any = sys.modules.get("numpy")
    if torch is not None:
        if isinstance(value, torch.Generator):
            return "torch-generator"
        if isinstance(value, torch.Tensor):
            return "cuda-tensor" if value.device.type == "cuda" else ""
    if isinstance(value, random.Random):
        return "" if isinstance(value, random.SystemRandom) else "rng"
    if numpy is not None and isinstance(value, (numpy.random.Generator, numpy.random.RandomState)):
        return "rng"
    return ""


def is_local_instance(value: Any) -> bool:
    """Whether the class of an object was made inside a function: pickle cannot name it."""
    return "<locals>" in type(value).__qualname__
