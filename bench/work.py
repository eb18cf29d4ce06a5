"""The workloads: what every contender has to load.

A work is a map-style dataset, a collate function, a batch size and what the consumer does
with a batch. Samples follow from the index alone and repeat after `PERIOD` samples, so that
any batch of any contender can be compared with a reference, and so that contenders which read
stored shards (LitData, WebDataset) can hold a whole period on disk:

    index --raw()--> what a shard would store --finish()--> sample --collate--> batch

`__getitem__` does the same without the detour, as a user would write it.

Only the standard library, numpy and torch are imported here; Pillow where JPEG needs it.
"""

from __future__ import annotations

import io
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, default_collate

# Samples before the content repeats: divisible by every batch size and by twice that, so that
# two workers that share the shards of one period deliver whole batches.
PERIOD = 1024

# More samples than any trial can load: a trial ends by the clock, inside one epoch.
ENDLESS = 50_000_000

IMAGE_SHAPE = (3, 224, 224)
POOL_SIZE = 64  # stored images: 9.6 MB as uint8, larger than most private caches


class Images(Dataset):
    """uint8 images from a small pool, delivered as they are."""

    def __init__(self, length: int = ENDLESS) -> None:
        self.length = length
        random = np.random.default_rng(0)
        self.pool = random.integers(0, 256, (POOL_SIZE, *IMAGE_SHAPE), dtype=np.uint8)

    def __len__(self) -> int:
        return self.length

    def raw(self, index: int) -> np.ndarray:
        # The pool is rotated by one image per 64 samples: otherwise all batches were equal
        # and a wrong order could not be seen.
        k = index % PERIOD
        return self.pool[(k + k // POOL_SIZE) % POOL_SIZE]

    @staticmethod
    def finish(raw: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(raw)

    def __getitem__(self, index: int) -> torch.Tensor:
        k = index % PERIOD
        return torch.from_numpy(self.pool[(k + k // POOL_SIZE) % POOL_SIZE])


class FloatImages(Images):
    """The same images converted to float32 in [0, 1]."""

    @staticmethod
    def finish(raw: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(raw).float().div_(255)

    def __getitem__(self, index: int) -> torch.Tensor:
        k = index % PERIOD
        return torch.from_numpy(self.pool[(k + k // POOL_SIZE) % POOL_SIZE]).float().div_(255)


class Rows(Dataset):
    """16 float32 features and an integer label: the smallest usual sample."""

    def __init__(self, length: int = ENDLESS) -> None:
        self.length = length
        random = np.random.default_rng(1)
        self.features = torch.from_numpy(random.standard_normal((PERIOD, 16), dtype=np.float32))
        self.labels = random.integers(0, 1000, PERIOD).tolist()

    def __len__(self) -> int:
        return self.length

    def raw(self, index: int) -> tuple[np.ndarray, int]:
        k = index % PERIOD
        return self.features[k].numpy(), self.labels[k]

    @staticmethod
    def finish(raw: tuple[np.ndarray, int]) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(raw[0]), raw[1]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        k = index % PERIOD
        return self.features[k], self.labels[k]


class Ragged(Dataset):
    """Token sequences of 16 to 256 int64 with the text they came from."""

    def __init__(self, length: int = ENDLESS) -> None:
        self.length = length
        random = np.random.default_rng(2)
        lengths = random.integers(16, 257, PERIOD)
        self.tokens = [random.integers(1, 50_000, n, dtype=np.int64) for n in lengths]
        self.texts = [f"document {k}: " + "word " * int(n // 8) for k, n in enumerate(lengths)]

    def __len__(self) -> int:
        return self.length

    def raw(self, index: int) -> tuple[np.ndarray, str]:
        k = index % PERIOD
        return self.tokens[k], self.texts[k]

    @staticmethod
    def finish(raw: tuple[np.ndarray, str]) -> dict[str, Any]:
        return {"tokens": torch.from_numpy(raw[0]), "text": raw[1]}

    def __getitem__(self, index: int) -> dict[str, Any]:
        k = index % PERIOD
        return {"tokens": torch.from_numpy(self.tokens[k]), "text": self.texts[k]}


def pad_collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Pad the tokens of a batch to the longest and keep the lengths."""
    tokens = [sample["tokens"] for sample in samples]
    return {
        "tokens": torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True),
        "length": torch.tensor([len(t) for t in tokens]),
        "text": [sample["text"] for sample in samples],
    }


class Fifty(Dataset):
    """A dict of 50 tensors of 8 float32: many small tensors per sample."""

    def __init__(self, length: int = ENDLESS) -> None:
        self.length = length
        random = np.random.default_rng(3)
        self.values = random.standard_normal((PERIOD, 50, 8), dtype=np.float32)
        self.names = tuple(f"feature_{n:02d}" for n in range(50))

    def __len__(self) -> int:
        return self.length

    def raw(self, index: int) -> np.ndarray:
        return self.values[index % PERIOD]

    def finish(self, raw: np.ndarray) -> dict[str, torch.Tensor]:
        return dict(zip(self.names, torch.from_numpy(raw).unbind(0), strict=True))

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.finish(self.values[index % PERIOD])


JPEG_SIZE = (500, 375)  # width and height of a typical photograph of ImageNet


class Jpegs(Dataset):
    """JPEG photographs, decoded with Pillow, cropped in the middle, float32 in [0, 1]."""

    def __init__(self, length: int = ENDLESS) -> None:
        self.length = length
        self.files = _jpeg_files()

    def __len__(self) -> int:
        return self.length

    def raw(self, index: int) -> bytes:
        k = index % PERIOD
        return self.files[(k + k // POOL_SIZE) % POOL_SIZE]

    @staticmethod
    def finish(raw: bytes) -> torch.Tensor:
        from PIL import Image

        image = Image.open(io.BytesIO(raw)).convert("RGB")
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        pixels = np.array(image.crop((left, top, left + 224, top + 224)))
        return torch.from_numpy(pixels).permute(2, 0, 1).to(torch.float32).div_(255).contiguous()

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.finish(self.raw(index))


def cache_folder() -> Path:
    """Return the folder in which generated files are kept between runs."""
    base = os.environ.get("PENSTOCK_BENCH_CACHE")
    folder = Path(base) if base else Path(tempfile.gettempdir()) / "penstock-bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _jpeg_files() -> list[bytes]:
    folder = cache_folder() / "jpeg-2"
    if not folder.exists():
        # Written beside and renamed: two trials may start at once on a fresh machine.
        beside = Path(tempfile.mkdtemp(dir=cache_folder()))
        for number in range(POOL_SIZE):
            (beside / f"{number:03d}.jpg").write_bytes(_make_jpeg(number))
        try:
            beside.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    return [(folder / f"{number:03d}.jpg").read_bytes() for number in range(POOL_SIZE)]


def _make_jpeg(number: int) -> bytes:
    from PIL import Image

    # Smooth shapes with some grain: about 60 kB at quality 90, as a photograph has. Pure noise
    # would take three times as long to decode.
    random = np.random.default_rng(1000 + number)
    coarse = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize(JPEG_SIZE, Image.Resampling.BICUBIC))
    grain = random.normal(0, 8, smooth.shape)
    pixels = np.clip(smooth + grain, 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=90)
    return out.getvalue()


def ignore(batch: Any) -> None:
    """Consume a batch without looking at it, as a copy to a GPU would."""


def read_all(batch: torch.Tensor) -> float:
    """Consume a batch by reading every byte of it."""
    return float(batch.sum())


def split_tensor(batch: torch.Tensor) -> Iterator[tuple[Any, ...]]:
    for row in batch:
        yield (row,)


def split_rows(batch: Any) -> Iterator[tuple[Any, ...]]:
    features, labels = batch
    yield from zip(features, labels, strict=True)


def split_ragged(batch: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    rows = zip(batch["tokens"], batch["length"].tolist(), batch["text"], strict=True)
    for tokens, length, text in rows:
        yield tokens[:length], bool(tokens[length:].any()), text


def split_fifty(batch: dict[str, torch.Tensor]) -> Iterator[tuple[Any, ...]]:
    yield from zip(*(batch[name] for name in sorted(batch)), strict=True)


@dataclass(frozen=True, slots=True)
class Bar:
    """What our loader is held to, against stock torch with the same number of workers."""

    rate: float  # times the samples per second
    cpu: float  # times less CPU per sample
    of_raw: float | None = None  # share of the rate of a loop that sends nothing anywhere


@dataclass(frozen=True, slots=True)
class Work:
    """One workload; `collate` is None where torch's default is meant."""

    name: str
    title: str
    batch_size: int
    dataset: Callable[..., Any]
    collate: Callable[[list[Any]], Any] | None
    consume: Callable[[Any], Any]
    split: Callable[[Any], Iterable[tuple[Any, ...]]]
    bar: Bar

    def fetch(self, dataset: Any, number: int) -> Any:
        """Return batch `number` of an epoch in order, made here and now."""
        first = number * self.batch_size
        samples = [dataset[index] for index in range(first, first + self.batch_size)]
        return (self.collate or default_collate)(samples)

    def digests(self, batch: Any) -> list[int]:
        """Return one checksum per sample, over content, shape and type, without padding."""
        return [_crc(pieces) for pieces in self.split(batch)]


def _crc(pieces: tuple[Any, ...]) -> int:
    value = 0
    for piece in pieces:
        if isinstance(piece, torch.Tensor):
            value = zlib.crc32(f"{piece.dtype}{tuple(piece.shape)}".encode(), value)
            value = zlib.crc32(piece.contiguous().numpy().reshape(-1).view(np.uint8), value)
        else:
            value = zlib.crc32(repr(piece).encode(), value)
    return value


def shape_of(batch: Any) -> str:
    """Return the structure of a batch as text: containers, types and shapes."""
    if isinstance(batch, torch.Tensor):
        return f"{batch.dtype}{list(batch.shape)}"
    if isinstance(batch, dict):
        return "{" + ", ".join(f"{key}: {shape_of(value)}" for key, value in batch.items()) + "}"
    if isinstance(batch, (list, tuple)):
        kinds = Counter(shape_of(value) for value in batch)
        inside = ", ".join(f"{kind} x{count}" for kind, count in kinds.items())
        return f"{type(batch).__name__}({inside})"
    return type(batch).__name__


WORKS = {
    work.name: work
    for work in (
        Work(
            name="float32",
            title="float32 images 3x224x224, batch 64",
            batch_size=64,
            dataset=FloatImages,
            collate=None,
            consume=ignore,
            split=split_tensor,
            bar=Bar(rate=3.5, cpu=4.5),
        ),
        Work(
            name="float32-read",
            title="float32 images 3x224x224, batch 64, consumer reads every byte",
            batch_size=64,
            dataset=FloatImages,
            collate=None,
            consume=read_all,
            split=split_tensor,
            bar=Bar(rate=2.0, cpu=2.5),
        ),
        Work(
            name="uint8",
            title="uint8 images 3x224x224, batch 64",
            batch_size=64,
            dataset=Images,
            collate=None,
            consume=ignore,
            split=split_tensor,
            bar=Bar(rate=3.0, cpu=4.0),
        ),
        Work(
            name="rows",
            title="16 floats and an integer label, batch 256",
            batch_size=256,
            dataset=Rows,
            collate=None,
            consume=ignore,
            split=split_rows,
            bar=Bar(rate=4.0, cpu=4.0),
        ),
        Work(
            name="ragged",
            title="dict of variable-length int64 and text, padding collate, batch 128",
            batch_size=128,
            dataset=Ragged,
            collate=pad_collate,
            consume=ignore,
            split=split_ragged,
            bar=Bar(rate=2.0, cpu=2.5),
        ),
        Work(
            name="fifty",
            title="dict of 50 tensors of 8 floats, batch 32",
            batch_size=32,
            dataset=Fifty,
            collate=None,
            consume=ignore,
            split=split_fifty,
            bar=Bar(rate=8.0, cpu=8.0),
        ),
        Work(
            name="jpeg",
            title="JPEG 500x375, Pillow, centre crop 224, float32, batch 64",
            batch_size=64,
            dataset=Jpegs,
            collate=None,
            consume=ignore,
            split=split_tensor,
            bar=Bar(rate=1.1, cpu=1.15, of_raw=0.9),
        ),
    )
}
