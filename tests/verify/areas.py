"""The areas of `turngym verify`. An area of several files is a folder whose `area.py` has its options and rows.

accounting.py  what a run wrote adds up
contracts.py   the clauses of the contract, on every environment
deadlines.py   what never answers stops no rollout
evaluation.py  numbers of evaluations, concurrency, kills
formats/       tool-call formats on recorded and fuzzed completions
grader/        right, wrong and hostile answers
household/     recorded episodes, walkthroughs, the real engine, fuzzed commands
leaks.py       environments that tell their gold, for contracts.py
methods/       worked examples, what all methods promise, branching
replies.py     hostile replies, in every environment
replay.py      episodes come out of their journal again
resume/        kills, signals, full disks, damaged checkpoints
sandbox/       hostile programs, load, faked machines
search/        retrieval, players, servers that fail
suites/        verdicts of suites beside the official ones
tasks.py       the golds of task files; answers that need no question (`constants.py`)
templates/     chat templates and control tokens
turns.py       what counts in a turn, for contracts.py
vllm.py        model servers that answer badly
rows.py        what an area yields
command.py     the command
"""

from __future__ import annotations

from typing import Annotated

import tyro

from turngym.tests.verify.accounting import Accounting
from turngym.tests.verify.contracts import Contracts
from turngym.tests.verify.deadlines import Deadlines
from turngym.tests.verify.evaluation import Evaluation
from turngym.tests.verify.formats.area import Formats
from turngym.tests.verify.grader.area import Grader
from turngym.tests.verify.household.area import Household
from turngym.tests.verify.methods.area import Methods
from turngym.tests.verify.replay import Replay
from turngym.tests.verify.resume.area import Resume
from turngym.tests.verify.sandbox.area import Sandbox
from turngym.tests.verify.search.area import Search
from turngym.tests.verify.suites.area import Suites
from turngym.tests.verify.tasks import Tasks
from turngym.tests.verify.templates.area import Templates
from turngym.tests.verify.vllm import Vllm

_name = tyro.conf.subcommand

AREAS = (
    Annotated[Accounting, _name("accounting")]
    | Annotated[Contracts, _name("contracts")]
    | Annotated[Deadlines, _name("deadlines")]
    | Annotated[Evaluation, _name("evaluation")]
    | Annotated[Formats, _name("formats")]
    | Annotated[Grader, _name("grader")]
    | Annotated[Household, _name("household")]
    | Annotated[Methods, _name("methods")]
    | Annotated[Replay, _name("replay")]
    | Annotated[Resume, _name("resume")]
    | Annotated[Sandbox, _name("sandbox")]
    | Annotated[Search, _name("search")]
    | Annotated[Suites, _name("suites")]
    | Annotated[Tasks, _name("tasks")]
    | Annotated[Templates, _name("templates")]
    | Annotated[Vllm, _name("vllm")]
)
