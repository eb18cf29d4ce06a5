from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from penstock._lab.inside import batches
from penstock._lab.inside.samples import WHOLE, describe


def digest(value):
    return describe(value, has_digest=True)["digest"]


@dataclass
class Point:
    x: torch.Tensor
    y: int


MANY = [
    3,
    2.5,
    "text",
    b"bytes",
    None,
    torch.arange(6),
    torch.arange(6).view(2, 3),
    torch.arange(6.0),
    torch.arange(6).to(torch.bfloat16),
    np.arange(7),
    np.array("a"),
    Image.new("L", (3, 3), 7),
    {"a": 1},
    [1, 2],
    Point(torch.zeros(2), 1),
    {1, 2},
    torch.zeros(WHOLE),
    torch.ones(WHOLE),
    torch.eye(2).to_sparse(),
    (2 * torch.eye(2)).to_sparse(),
]


def test_different_samples_have_different_digests():
    assert len({digest(value) for value in MANY}) == len(MANY)


@pytest.mark.parametrize("value", [torch.rand(3, 4), torch.rand(512, 512), torch.rand(700, 300)])
def test_the_digest_is_of_the_content_not_of_its_place_in_memory(value):
    assert digest(value) == digest(value.clone())
    assert digest(value) == digest(value.t().contiguous().t())


@pytest.mark.parametrize("place", [0, 40_000, 262_143])
def test_one_changed_byte_of_a_large_tensor_shows(place):
    one = torch.zeros(512, 512)
    other = one.clone()
    other.view(-1)[place] = 1
    assert digest(one) != digest(other)


def test_a_large_picture_upside_down_has_another_digest():
    value = torch.rand(512, 512)
    assert digest(value) != digest(value.flip(0))


def test_form_and_sizes_of_a_sample():
    big = torch.zeros(1000)
    told = describe({"x": big[:10], "y": 3, "z": np.zeros((2, 2), np.uint8)}, has_digest=False)
    assert told["shape"] == "dict(x=f32[10],y=int,z=np.u8[2,2])"
    assert (told["tensors"], told["nbytes"], told["storage_nbytes"]) == (1, 44, 4004)
    assert told["digest"] == ""
    assert describe(None, has_digest=False)["is_none"]


def test_looking_at_samples_draws_no_random_number():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    for value in MANY:
        digest(value)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()


def test_facts_of_a_batch():
    told = batches.facts([torch.zeros(4, 2), {"name": ["ab"] * 4}], 4, is_batched=True)
    assert told == {"tensors": 1, "nbytes": 32, "pickled": 32, "samples": 4}


def test_many_objects_beside_a_tensor_are_reckoned():
    hits = [[SimpleNamespace(x=1.0, y=2.0, z=3.0) for _ in range(1_000)] for _ in range(8)]
    assert batches.facts({"hits": hits, "y": torch.zeros(8)}, 8, is_batched=True)["pickled"] > 60_000


def test_the_last_batch_has_as_many_samples_as_rows():
    assert batches.facts([torch.zeros(3, 2)], 4, is_batched=True)["samples"] == 3
    assert batches.facts(torch.zeros(3, 2), None, is_batched=False)["samples"] == 1


def test_a_batch_is_kept_as_long_as_a_view_of_it_lives():
    first, second = torch.zeros(4), torch.zeros(4)
    held = [batches.references([first]), batches.references([second])]
    view = first[1:]
    del first, second
    assert batches.kept(held) == held[:1]
    del view
    assert batches.kept(held) == []
