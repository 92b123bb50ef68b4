"""Where a run stands between two steps: one immutable value, replaced as a whole when a step is over.

With the weights and the optimizer's moments it is all that the next step depends on, so a checkpoint of it can be
written at any instant, also in the middle of a step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..agents.checkpoint import CheckpointError, read_state


@dataclass(frozen=True)
class Boundary:
    """Where a run stands after `step` steps."""

    control: str  # JSON text of the control state: nothing that a control does to its state reaches it
    step: int = 0
    cursor: int = 0  # tasks used
    version: int = 0  # of the weights
    tokens: int = 0  # drawn for training, those of steps without an update too
    refused: int = 0  # steps without an update, in a row
    stop: bool = False  # a control asked the run to end here
    line: str = "{}"  # JSON text of what the last step measured, without wall-clock times

    def over(self, steps: int, token_budget: int) -> bool:
        """Return whether a run of `steps` steps and `token_budget` tokens (0 is no limit) ends here."""
        return self.stop or self.step >= steps or 0 < token_budget <= self.tokens

    def state(self) -> Any:
        """Return the control state, as a fresh value."""
        return json.loads(self.control)

    def metrics(self) -> dict[str, Any]:
        """Return what the last step measured; NaN where a number was not finite."""
        return {name: math.nan if value is None else value for name, value in json.loads(self.line).items()}

    def to_json(self) -> dict[str, Any]:
        """Return JSON data."""
        return {**asdict(self), "control": self.state(), "line": json.loads(self.line)}


def read_boundary(checkpoint: Path) -> Boundary:
    """Return the boundary of a checkpoint.

    Raises:
        CheckpointError: its state is not that of a boundary.
    """
    data = read_state(checkpoint)
    kinds: dict[str, type] = {
        **dict.fromkeys(("step", "cursor", "version", "tokens", "refused"), int),
        "stop": bool,
        "line": dict,
    }
    if data.keys() != {"control", *kinds}:
        raise CheckpointError(f"{checkpoint} holds the state {sorted(data)}; it must be {sorted({'control', *kinds})}")
    for name, kind in kinds.items():
        value = data[name]
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            raise CheckpointError(f"{checkpoint}: {name} is {value!r}; it must be of type {kind.__name__}")
    return Boundary(**{**data, "control": json.dumps(data["control"]), "line": json.dumps(data["line"])})


def to_text(state: Any) -> str:
    """Return a control state as JSON text.

    Raises:
        ValueError: it is no JSON data, or holds a number that is not finite.
    """
    try:
        return json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the state of the controls is {state!r}, which is no JSON data ({error})") from error


def to_line(values: Mapping[str, Any]) -> str:
    """Return `values` as JSON text, with null for a number that is not finite."""
    return json.dumps({name: _number(value) for name, value in values.items()}, allow_nan=False)


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
