"""What the file of a method is written with: trees, the data of a step, what a control is made of, and its types.

Each name is of the module that it is imported from here; own methods may import it from there.
"""

from dataclasses import replace
from typing import Annotated, TypeAlias

from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...agents.trajectory import Event, Key, Spawn, Tree
from ..control.chain import chain
from ..control.control import (
    Control,
    Epoch,
    Needs,
    Replay,
    Request,
    Requests,
    Sets,
    State,
    Stats,
    Verdict,
)
from ..control.parameters import Range
from ..data.batch import Batch, Current, Now, Penalty, Surrogate, Terms

# Types of parameters, beside those of `parameters`.
Whole = Annotated[int, Range(0)]
Several = Annotated[int, Range(2)]
Part = Annotated[float, Range(0, 1, above=True)]
Factor = Annotated[float, Range(1)]
Unbounded = Annotated[float, Range(unbounded=True)]
Width = Annotated[float, Range(0, above=True, unbounded=True)]
Ceiling = Annotated[float, Range(1, unbounded=True)]

Slots: TypeAlias = Float[
    Tensor, "s"
]  # a number for each slot, as credit, surrogates and penalties return it
Rows: TypeAlias = Float[Tensor, "r"]  # a number for each turn of a path, as a reward returns it
Logits: TypeAlias = Float[Tensor, "c v"]  # what a functional gets: logits of c tokens,
Ids: TypeAlias = Int[Tensor, "c"]  # the tokens that were drawn,
Before: TypeAlias = Tensor | None  # and what it returned at the start of the update
Values: TypeAlias = Float[
    Tensor, "c"
]  # what it returns, unless that is several numbers for each token
Vector: TypeAlias = Float[Tensor, "n"]  # a number for each of n paths, turns or tokens,
Labels: TypeAlias = Int[Tensor, "n"]  # a whole number for each, such as that of its group,
Flags: TypeAlias = Bool[Tensor, "n"]  # and of which something holds

__all__ = [
    "Batch",
    "Before",
    "Ceiling",
    "Control",
    "Current",
    "Event",
    "Factor",
    "Flags",
    "Ids",
    "Key",
    "Labels",
]
__all__ += [
    "Logits",
    "Needs",
    "Now",
    "Part",
    "Penalty",
    "Replay",
    "Request",
    "Requests",
    "Rows",
    "Sets",
    "Several",
]
__all__ += [
    "Epoch",
    "Slots",
    "Spawn",
    "State",
    "Stats",
    "Surrogate",
    "Terms",
    "Tree",
    "Unbounded",
    "Values",
]
__all__ += ["Vector", "Verdict", "Whole", "Width", "chain", "replace"]
