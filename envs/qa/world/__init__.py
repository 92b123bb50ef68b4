"""An invented world to search: nothing in it can be known, so its questions need its passages."""

from __future__ import annotations

from functools import cached_property

from ....tools.search.core import Passage
from ...tasks import did_you_mean
from .graph import SIZES, build
from .passages import write
from .tasks import HOPS, WorldTasks

__all__ = ["HOPS", "SIZES", "World", "WorldTasks"]


class World:
    """People, places, organisations, works and events, a passage each, and questions about them.

    The same arguments give the same world on any machine.

    Args:
        seed: Chooses the names and the facts.
        size: `tiny` (1,000 very short passages for a very small policy), `small` (3,000), `medium` (20,000) or `large`
            (100,000).

    Raises:
        ValueError: There is no such size.
    """

    def __init__(self, seed: int = 0, size: str = "small") -> None:
        if size not in SIZES:
            raise ValueError(
                f"unknown size {size!r} of a world; {did_you_mean(size, SIZES)}the sizes are {', '.join(SIZES)}"
            )
        self.seed = seed
        self.size = size
        self.name = f"world-{size}-{seed}"
        self.graph = build(seed, SIZES[size])

    @cached_property
    def passages(self) -> list[Passage]:
        """A passage about each thing; its title is the thing's name."""
        brief = SIZES[self.size].brief
        return [
            write(self.graph, kind, number, self.seed, brief)
            for kind, names in self.graph.names.items()
            for number in range(len(names))
        ]

    def tasks(self, split: str = "train", hops: int | tuple[int, ...] = HOPS) -> WorldTasks:
        """Return the questions of a split; see `WorldTasks`."""
        return WorldTasks(self.graph, self._ids, self.name, split, hops, SIZES[self.size].brief)

    @cached_property
    def _ids(self) -> dict[str, str]:
        return {passage.title: passage.id for passage in self.passages}
