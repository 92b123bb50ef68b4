"""The areas of `turngym verify`."""

from __future__ import annotations

from typing import Annotated

import tyro

from turngym.tests.verify.accounting import Accounting
from turngym.tests.verify.contracts import Contracts
from turngym.tests.verify.deadlines import Deadlines
from turngym.tests.verify.formats.area import Formats
from turngym.tests.verify.grader.area import Grader
from turngym.tests.verify.household.area import Household
from turngym.tests.verify.methods.area import Methods
from turngym.tests.verify.replay import Replay
from turngym.tests.verify.resume.area import Resume
from turngym.tests.verify.sandbox.area import Sandbox
from turngym.tests.verify.search.area import Search
from turngym.tests.verify.tasks import Tasks
from turngym.tests.verify.templates.area import Templates
from turngym.tests.verify.vllm import Vllm

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
