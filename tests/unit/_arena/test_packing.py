"""A list in two buffers that reads like the list."""

from __future__ import annotations

import copy
import operator
import pickle
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

from penstock._arena import packing
from penstock._arena.packing import PackedList, pack_large, swap_large

LISTS = {
    "texts": ["a.jpg", "", "ü", "b/c.png"],
    "file names": ["caf\udce9.jpg", "ok"],  # what os.fsdecode makes of bytes that are no UTF-8
    "bytes": [b"", b"\0\1", b"xyz"],
    "numbers": [3, -1, 2.5, 1 << 80],
    "pairs": [("a", 1), ("b", 2), ("a", 1)],
    "mixed": [None, "a", b"a", [1, [2]], {"k": (1,)}],
    "empty": [],
}


@pytest.fixture
def four_is_large(monkeypatch):
    """Lists of four elements and more count as large."""
    monkeypatch.setattr(packing, "LARGE", 4)


@pytest.fixture(params=LISTS.values(), ids=LISTS)
def pair(request):
    """A list, and the same packed."""
    return request.param, PackedList.pack(request.param)


# ---- reads like the list ------------------------------------------------------------------------


def test_it_has_the_elements(pair):
    plain, packed = pair
    assert list(packed) == plain


def test_it_has_their_types(pair):
    plain, packed = pair
    assert [type(element) for element in packed] == [type(element) for element in plain]


def test_it_has_the_length(pair):
    plain, packed = pair
    assert len(packed) == len(plain)
    assert bool(packed) == bool(plain)


def test_it_has_the_same_element_at_every_index(pair):
    plain, packed = pair
    for index in range(-len(plain), len(plain)):
        assert packed[index] == plain[index]


CUTS = [slice(None), slice(1, 3), slice(None, None, -1), slice(-2, None), slice(9, 1), slice(0, 9, 2)]


def test_a_slice_is_a_plain_list(pair):
    plain, packed = pair
    for cut in CUTS:
        assert packed[cut] == plain[cut]
        assert type(packed[cut]) is list


def test_an_index_outside_is_an_index_error(pair):
    plain, packed = pair
    for index in (len(plain), len(plain) + 5, -len(plain) - 1):
        with pytest.raises(IndexError, match=r"^list index out of range$"):
            packed[index]


def test_numpy_integers_are_indices():
    assert PackedList.pack(["a", "b"])[np.int64(-1)] == "b"


def test_a_text_is_no_index():
    with pytest.raises(TypeError):
        PackedList.pack(["a", "b"])["a"]


def test_it_answers_in_index_count_and_reversed(pair):
    plain, packed = pair
    assert list(reversed(packed)) == plain[::-1]
    for element in plain:
        assert element in packed
        assert packed.index(element) == plain.index(element)
        assert packed.count(element) == plain.count(element)
    assert "not there" not in packed


def test_it_is_equal_to_the_list(pair):
    plain, packed = pair
    assert packed == plain
    assert plain == packed
    assert packed == PackedList.pack(plain)


@pytest.mark.parametrize("other", [["a"], ["a", "c"], ("a", "b"), "ab", 7])
def test_it_differs_from_anything_else(other):
    assert PackedList.pack(["a", "b"]) != other


def test_it_cannot_be_hashed():
    with pytest.raises(TypeError, match="unhashable"):
        hash(PackedList.pack(["a"]))


@pytest.mark.parametrize("change", [lambda p: operator.setitem(p, 0, "x"), lambda p: operator.delitem(p, 0)])
def test_it_cannot_be_changed(change):
    with pytest.raises(TypeError):
        change(PackedList.pack(["a"]))


def test_it_says_what_it_is():
    assert repr(PackedList.pack(["a", "b"])) == "<PackedList of 2 elements, 0.0 MiB>"


def test_it_knows_its_bytes():
    assert PackedList.pack(["a", "bc"]).nbytes == 3 * 8 + 3


def test_a_tuple_can_be_packed():
    assert list(PackedList.pack(("a", "b"))) == ["a", "b"]


def test_more_than_one_chunk_is_packed(monkeypatch):
    monkeypatch.setattr(packing, "_CHUNK", 3)
    plain = [str(number) * number for number in range(10)]
    assert PackedList.pack(plain) == plain


def test_elements_are_made_anew_at_each_access():
    packed = PackedList.pack([("a", [1])])
    packed[0][1].append(2)
    assert packed[0] == ("a", [1])


# ---- journeys -----------------------------------------------------------------------------------


def test_it_survives_pickling(pair):
    plain, packed = pair
    assert pickle.loads(pickle.dumps(packed, 5)) == plain


def test_its_buffers_go_out_of_band():
    buffers = []
    data = pickle.dumps(PackedList.pack(["a" * 1000] * 100), 5, buffer_callback=buffers.append)
    assert len(data) < 300
    assert pickle.loads(data, buffers=[buffer.raw() for buffer in buffers])[99] == "a" * 1000


def test_it_can_be_copied(pair):
    plain, packed = pair
    assert copy.copy(packed) == plain


def test_it_can_be_copied_deeply():
    assert copy.deepcopy(PackedList.pack(["a", "b"])) == ["a", "b"]


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(protocol) for protocol in (2, pickle.DEFAULT_PROTOCOL, 5)],
)
def test_it_survives_pickling_with_every_protocol(protocol):
    assert pickle.loads(pickle.dumps(PackedList.pack(["a", "b"]), protocol)) == ["a", "b"]


# ---- in the place of the lists of a dataset -----------------------------------------------------


Boxed = namedtuple("Boxed", "x")


class Dataset:
    def __init__(self, **parts):
        self.__dict__.update(parts)


def swapped(dataset):
    swap_large(dataset, pack_large(dataset, {}))
    return dataset


@pytest.mark.usefixtures("four_is_large")
def test_a_large_list_is_replaced():
    dataset = swapped(Dataset(files=list("abcd")))
    assert type(dataset.files) is PackedList
    assert dataset.files == list("abcd")


@pytest.mark.usefixtures("four_is_large")
def test_a_short_list_stays():
    files = list("abc")
    assert swapped(Dataset(files=files)).files is files


@pytest.mark.usefixtures("four_is_large")
@pytest.mark.parametrize(
    ("wrap", "unwrap"),
    [
        (lambda big: SimpleNamespace(inner=SimpleNamespace(x=big)), lambda part: part.inner.x),
        (lambda big: {"x": {"y": big}}, lambda part: part["x"]["y"]),
        (lambda big: OrderedDict(x=big), lambda part: part["x"]),
        (lambda big: [1, [big]], lambda part: part[1][0]),
        (lambda big: (1, {"x": big}), lambda part: part[1]["x"]),
        pytest.param(lambda big: (1, [big]), lambda part: part[1][0]),
    ],
    ids=["objects", "dictionaries", "ordered", "lists", "in a tuple's dictionary", "in a tuple's list"],
)
def test_a_nested_list_is_replaced(wrap, unwrap):
    dataset = swapped(Dataset(part=wrap(list("abcd"))))
    assert type(unwrap(dataset.part)) is PackedList


@pytest.mark.usefixtures("four_is_large")
@pytest.mark.parametrize("kind", [lambda big: (1, big), Boxed])
def test_a_tuple_is_left_alone(kind):
    part = kind(list("abcd"))
    dataset = swapped(Dataset(part=part))
    assert dataset.part is part
    assert type(part[-1]) is list


@pytest.mark.usefixtures("four_is_large")
def test_a_subclass_of_list_is_left_alone():
    class Mine(list):
        pass

    assert type(swapped(Dataset(part=Mine("abcd"))).part) is Mine


@pytest.mark.usefixtures("four_is_large")
def test_one_list_in_two_places_is_packed_once():
    files = list("abcd")
    dataset = swapped(Dataset(one=files, other=SimpleNamespace(files=files)))
    assert dataset.one is dataset.other.files


@pytest.mark.usefixtures("four_is_large")
def test_a_cycle_comes_to_an_end():
    dataset = Dataset(files=list("abcd"))
    dataset.me = [dataset]
    assert type(swapped(dataset).files) is PackedList


@pytest.mark.usefixtures("four_is_large")
def test_classes_functions_and_modules_are_not_searched():
    class Holder:
        files = list("abcd")  # noqa: RUF012

    def function():
        pass

    function.files = list("abcd")
    swapped(Dataset(kind=Holder, function=function, module=packing))
    assert type(Holder.files) is list
    assert type(function.files) is list


@pytest.mark.usefixtures("four_is_large")
def test_the_search_ends_at_a_depth():
    part = list("abcd")
    for _ in range(20):
        part = {"x": part}
    assert pack_large(Dataset(part=part), {}) == {}


@pytest.mark.usefixtures("four_is_large")
def test_packing_leaves_the_consumers_dataset_alone():
    dataset = Dataset(files=list("abcd"))
    pack_large(dataset, {})
    assert type(dataset.files) is list


@pytest.mark.usefixtures("four_is_large")
def test_a_list_that_is_known_is_not_packed_again():
    dataset = Dataset(files=list("abcd"))
    first = pack_large(dataset, {})
    again = pack_large(dataset, first)
    assert again[id(dataset.files)] is first[id(dataset.files)]


@pytest.mark.usefixtures("four_is_large")
def test_a_list_that_has_grown_is_packed_again():
    dataset = Dataset(files=list("abcd"))
    first = pack_large(dataset, {})
    dataset.files.append("e")
    assert pack_large(dataset, first)[id(dataset.files)][1] == list("abcde")


@pytest.mark.usefixtures("four_is_large")
def test_a_list_that_was_shuffled_is_packed_again():
    dataset = Dataset(files=list("abcd"))
    first = pack_large(dataset, {})
    dataset.files.reverse()
    assert pack_large(dataset, first)[id(dataset.files)][1] == list("dcba")


@pytest.mark.usefixtures("four_is_large")
def test_a_list_that_is_gone_is_not_kept():
    dataset = Dataset(files=list("abcd"))
    first = pack_large(dataset, {})
    dataset.files = list("wxyz")
    assert list(pack_large(dataset, first)) == [id(dataset.files)]


@pytest.mark.usefixtures("four_is_large")
def test_what_was_not_packed_is_not_replaced():
    dataset = Dataset(files=list("abcd"))
    swap_large(dataset, {})
    assert type(dataset.files) is list
