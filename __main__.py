"""Text environments for LLM agents, and training of LoRA policies in them.

This module joins the commands of all packages. Each command is a frozen dataclass whose fields are its options.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Union

import tyro

from .agents.cli.check import Check
from .agents.cli.doctor import Doctor
from .agents.cli.envs import Envs
from .agents.cli.evaluate import suite_of
from .agents.cli.play import Play
from .agents.cli.repeated_options import join_repeated
from .agents.cli.replay import ReplayJournal
from .agents.cli.serve_search import ServeSearch
from .agents.cli.terminal import PlainFormatter, endings, mistakes, usage
from .agents.cli.warmup import Warmup
from .envs.tasks import did_you_mean
from .training.cli.analyse import Analyse
from .training.cli.audit import Audit
from .training.cli.claims import Claims
from .training.cli.compare import Compare
from .training.cli.demo import Demo
from .training.cli.diagnose import Diagnose
from .training.cli.evaluate import Evaluate
from .training.cli.export import Export
from .training.cli.methods import Methods
from .training.cli.train import Train, train_of, warmup_of
from .training.cli.verify import Verify, verify_command
from .training.cli.view import View

COMMANDS: dict[str, Any] = {
    "train": Train,
    "compare": Compare,
    "demo": Demo,
    "eval": Evaluate,
    "diagnose": Diagnose,
    "play": Play,
    "check": Check,
    "replay": ReplayJournal,
    "export": Export,
    "audit": Audit,
    "view": View,
    "analyse": Analyse,
    "claims": Claims,
    "verify": Verify,
    "envs": Envs,
    "methods": Methods,
    "warmup": Warmup,
    "doctor": Doctor,
    "serve-search": ServeSearch,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    args = list(sys.argv[1:] if argv is None else argv)
    if logging.lastResort is not None:  # which prints warnings where no handler was set
        logging.lastResort.setFormatter(PlainFormatter())
    with mistakes():
        command = _command(args)
    with endings(), mistakes((OSError,)):
        status = command.run()
    sys.exit(status)


def _command(args: list[str]) -> Any:
    """Return the command that `args` begin with, with its options; raise ValueError where they name none."""
    name, settings = (args or [""])[0], dict[str, Any]()
    if name.startswith("-"):  # for the help on all commands
        kinds = tuple(
            Annotated[kind, tyro.conf.subcommand(name=key)] for key, kind in COMMANDS.items()
        )
        with usage():
            every: Any = Union[kinds]  # noqa: UP007
            return tyro.cli(
                every, args=args, prog="turngym", description=(__doc__ or "").partition("\n")[0]
            )
    if name not in COMMANDS:
        what = (
            f"there is no command {name!r}; {did_you_mean(name, COMMANDS)}"
            if name
            else "name a command; "
        )
        raise ValueError(
            f"{what}commands are {', '.join(COMMANDS)}, and `turngym --help` describes them"
        )
    if name != "verify":
        args = join_repeated(args)
    if name == "train":
        settings["default"] = train_of(args)
    elif name == "warmup":
        settings["default"] = warmup_of(args)
    elif name == "eval":
        settings["default"] = suite_of(args, Evaluate())
    kind = verify_command(args) if name == "verify" else COMMANDS[name]
    with usage():
        return tyro.cli(kind, args=args[1:], prog=f"turngym {name}", **settings)


if __name__ == "__main__":
    main()
