"""What a batch is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from penstock._lab.inside.batches import facts, leaves


@dataclass
class Plain:
    image: torch.Tensor
    name: str


@dataclass
class Slotted:
    __slots__ = ("boxes", "name")
    boxes: torch.Tensor
    name: str


def test_samples_of_a_class_of_the_users_are_opened_with_dictionary_or_slots():
    image, boxes = torch.zeros(3, 4), torch.zeros(2, 4)

    found = list(leaves([Plain(image, "a"), {"b": Slotted(boxes, "b")}]))

    assert [id(value) for value in found] == [id(value) for value in (image, "a", boxes, "b")]
    assert facts([Slotted(boxes, "b"), Slotted(boxes, "c")], 2, is_batched=True)["tensors"] == 2


def test_what_holds_no_parts_of_its_own_is_one_thing():
    whole = [np.zeros(3), range(3), np.float32(1.0), 1.5, torch.float32]

    assert [type(value) for value in leaves(whole)] == [type(value) for value in whole]
