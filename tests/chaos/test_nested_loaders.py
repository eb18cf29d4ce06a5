"""A loader inside a worker of another: ours in ours, torch's in ours, ours in torch's daemonic workers."""

from __future__ import annotations

import os
import signal

import pytest

from .stage import children

SCRIPT = """
import torch.utils.data
LOADERS = {{"ours": DataLoader, "stock": torch.utils.data.DataLoader}}
Outer, Inner = LOADERS["{outer}"], LOADERS["{inner}"]

class Nested(Pictures):
    def __getitem__(self, index):
        inner = Inner(Pictures(4), batch_size=2, num_workers=1)
        return torch.cat([batch + index for batch in inner])

def right(batch, index):
    return is_right(batch[0] - index, range(4))

{body}
"""

WHOLE = """
outer = Outer(Nested(3), batch_size=1, num_workers=1)
say(all([right(batch, number) for number, batch in enumerate(outer)]))
"""

BROKEN = """
for batch in Outer(Nested(8), batch_size=1, num_workers=1):
    say(right(batch, 0))
    break
"""

ASLEEP = """
class Nested(Nested):
    def __getitem__(self, index):
        return next(iter(Inner(Sleepers(), num_workers=1)))

iterator = iter(Outer(Nested(2), batch_size=1, num_workers=1))
next(iterator)
"""

# torch in torch is not possible: its workers are daemonic, and refuse to have children.
PAIRS = [("ours", "ours"), ("ours", "stock"), ("stock", "ours")]


def children_of(family: set[int]) -> set[int]:
    """The one or more at the top: those that are nobody else's children."""
    return family - set().union(*map(children, family))


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_a_loader_inside_a_worker_delivers(stage, outer, inner):
    assert stage.run(SCRIPT.format(outer=outer, inner=inner, body=WHOLE)) == "True\n"


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_an_early_break_outside_ends_the_loader_inside(stage, outer, inner):
    assert stage.run(SCRIPT.format(outer=outer, inner=inner, body=BROKEN)) == "True\n"


def test_the_death_of_the_consumer_ends_the_innermost_worker(stage):
    with stage.play(SCRIPT.format(outer="ours", inner="ours", body=ASLEEP)) as consumer:
        consumer.hear("asleep")
        consumer.kill()
        consumer.wait()
        consumer.leaves_nothing()


def test_the_death_of_a_stock_worker_ends_the_loader_inside_it(stage):
    # A stock worker survives its consumer while user code keeps it; our part is what is below it.
    with stage.play(SCRIPT.format(outer="stock", inner="ours", body=ASLEEP)) as consumer:
        consumer.hear("asleep")
        consumer.kill()
        consumer.wait()
        (worker,) = children_of(consumer.family())
        os.kill(worker, signal.SIGKILL)
        consumer.leaves_nothing()


def test_workers_that_use_a_loader_which_the_consumer_has_used_do_not_share_its_memory(stage):
    assert (
        stage.run("""
        class Nested(Pictures):
            def __init__(self, loader):
                super().__init__(8)
                self.loader = loader
            def __getitem__(self, index):
                self.loader.dataset.index = index
                kept = list(self.loader)
                time.sleep(0.01)
                return torch.cat(kept)

        class Shifted(Pictures):
            index = 0
            def __getitem__(self, index):
                return picture(index + 100 * self.index)

        inner = DataLoader(Shifted(8), batch_size=2, num_workers=1)
        list(inner)
        for number, batch in enumerate(DataLoader(Nested(inner), batch_size=None, num_workers=2)):
            say(is_right(batch, range(100 * number, 100 * number + 8)))
    """)
        == "True\n" * 8
    )
