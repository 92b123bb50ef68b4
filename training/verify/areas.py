"""The areas of `turngym verify`."""

from __future__ import annotations

from typing import Annotated

import tyro

from .accounting import Accounting
from .contracts import Contracts
from .deadlines import Deadlines
from .formats import Formats
from .grader import Grader
from .household import Household
from .methods import Methods
from .replay import Replay
from .resume import Resume
from .sandbox import Sandbox
from .search import Search
from .tasks import Tasks
from .templates import Templates
from .vllm import Vllm

_name = tyro.conf.subcommand

AREAS = (
    Annotated[Accounting, _name("accounting")]
    | Annotated[Contracts, _name("contracts")]
    | Annotated[Deadlines, _name("deadlines")]
    | Annotated[Formats, _name("formats")]
    | Annotated[Grader, _name("grader")]
    | Annotated[Household, _name("household")]
    | Annotated[Methods, _name("methods")]
    | Annotated[Replay, _name("replay")]
    | Annotated[Resume, _name("resume")]
    | Annotated[Sandbox, _name("sandbox")]
    | Annotated[Search, _name("search")]
    | Annotated[Tasks, _name("tasks")]
    | Annotated[Templates, _name("templates")]
    | Annotated[Vllm, _name("vllm")]
)
