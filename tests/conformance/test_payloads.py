"""Whatever a collate function returns arrives as it was made."""

from __future__ import annotations

import warnings

import pytest
import torch

from .comparing import assert_same
from .datasets import Assorted, Made, first_of, outcomes
from .payloads import EVERYTHING, Colour, MakePayload

BETA_FEATURES = (
    "ComplexHalf support is experimental",
    "Sparse [BC]S[RC] tensor support is in beta",
    "Sparse invariant checks",
    "The PyTorch API of nested tensors",
    "the matrix subclass is not",
)
pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in BETA_FEATURES]


@pytest.fixture(scope="module")
def arrived(loader_class):
    """One batch per payload, from one worker: starting a worker for each would take minutes."""
    dataset = Assorted(*map(MakePayload, EVERYTHING))
    with warnings.catch_warnings():
        for text in BETA_FEATURES:
            warnings.filterwarnings("ignore", text)
        loader = loader_class(dataset, num_workers=1, collate_fn=first_of, timeout=30)
        return dict(zip(EVERYTHING, outcomes(loader), strict=True))


def delivered(loader_class, make, **options):
    """The one batch of a loader whose worker calls `make`."""
    options = {"num_workers": 1, "collate_fn": first_of, **options}
    (batch,) = loader_class(Made(make, size=1), **options)
    return batch


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_payload_arrives_as_it_was_made(arrived, name):
    assert_same(arrived[name], EVERYTHING[name]())


@pytest.mark.parametrize("name", ["transposed", "channels last", "no element, many dimensions"])
def test_a_dense_tensor_keeps_its_strides(arrived, name):
    assert arrived[name].stride() == EVERYTHING[name]().stride()


def test_a_fortran_array_keeps_its_order(arrived):
    assert arrived["array fortran order"].flags.f_contiguous


@pytest.mark.parametrize("name", ["array int64", "array read-only", "array large"])
def test_an_array_arrives_writeable(arrived, name):
    assert arrived[name].flags.writeable


def test_a_tensor_subclass_keeps_its_methods(arrived):
    assert_same(arrived["subclass"].area(), EVERYTHING["subclass"]().area())


def test_an_attribute_of_a_tensor_subclass_is_kept(arrived):
    assert arrived["subclass with an attribute"].label == "kept"


def test_an_attribute_of_a_dict_subclass_is_kept(arrived):
    assert arrived["dict subclass"].tag == "kept"


def test_an_enum_member_stays_the_one_member(arrived):
    assert arrived["enum"] is Colour.RED


def test_a_tensor_without_a_batch_sampler_arrives_as_it_was_made(loader_class):
    (got,) = loader_class(Made(MakePayload("mixed"), size=1), batch_size=None, num_workers=1)
    (expected,) = torch.utils.data.DataLoader(Made(MakePayload("mixed"), size=1), batch_size=None)
    assert_same(got, expected)


def one_tensor_twice():
    tensor = torch.zeros(4)
    return {"a": tensor, "b": tensor}


def test_a_tensor_given_twice_arrives_as_one_object(loader_class):
    got = delivered(loader_class, one_tensor_twice)
    assert got["a"] is got["b"]


def tensor_and_its_view():
    tensor = torch.zeros(4)
    return tensor, tensor[1:3]


def test_tensors_that_share_a_storage_still_share_it(loader_class):
    whole, part = delivered(loader_class, tensor_and_its_view)
    whole[1] = 7
    assert part.tolist() == [7, 0]


def two_views_of_one_storage():
    storage = torch.arange(8)
    return storage[:4], storage[4:]


def test_views_of_one_storage_arrive_with_their_own_values(loader_class):
    got = delivered(loader_class, two_views_of_one_storage)
    assert [part.tolist() for part in got] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def one_list_twice():
    names = ["a"]
    return {"a": names, "b": names}


def test_a_list_given_twice_arrives_as_one_object(loader_class):
    got = delivered(loader_class, one_list_twice)
    assert got["a"] is got["b"]


def cycle():
    knot = {"tensor": torch.ones(2)}
    knot["self"] = knot
    return knot


def test_a_batch_may_contain_itself(loader_class):
    got = delivered(loader_class, cycle)
    assert got["self"] is got
    assert_same(got["tensor"], torch.ones(2))


def shared_tensor():
    return torch.arange(5).share_memory_()


def test_a_tensor_already_in_shared_memory_arrives(loader_class):
    assert_same(delivered(loader_class, shared_tensor), torch.arange(5))
