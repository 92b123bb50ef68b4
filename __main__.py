"""Text environments for LLM agents, and training of LoRA policies in them.

This module joins the commands of all packages. Each command is a frozen dataclass whose fields are its options.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from .agents.commands import Check, Doctor, Envs, Eval, Play, Replay, ServeSearch, Warmup
from .agents.terminal import mistakes
from .training.commands import Audit, Compare, Methods, Train, train_of, verify_command, warmup_of
from .training.config import TrainConfig
from .training.process import endings

subcommand = tyro.conf.subcommand


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    args = list(sys.argv[1:] if argv is None else argv)
    with mistakes():
        train = train_of(args) if args[:1] == ["train"] else Train(TrainConfig())
        warmup = warmup_of(args) if args[:1] == ["warmup"] else Warmup()
        verify = verify_command(args)
    commands = (
        Annotated[Train, subcommand(name="train", default=train)]
        | Annotated[Compare, subcommand(name="compare")]
        | Annotated[Eval, subcommand(name="eval")]
        | Annotated[Play, subcommand(name="play")]
        | Annotated[Check, subcommand(name="check")]
        | Annotated[Replay, subcommand(name="replay")]
        | Annotated[Audit, subcommand(name="audit")]
        | Annotated[verify, subcommand(name="verify")]  # type: ignore[valid-type]
        | Annotated[Envs, subcommand(name="envs")]
        | Annotated[Methods, subcommand(name="methods")]
        | Annotated[Warmup, subcommand(name="warmup", default=warmup)]
        | Annotated[Doctor, subcommand(name="doctor")]
        | Annotated[ServeSearch, subcommand(name="serve-search")]
    )
    command: Any = tyro.cli(commands, args=args, prog="turngym", description=__doc__.splitlines()[0] if __doc__ else "")
    with endings():
        status = command.run()
    sys.exit(status)


if __name__ == "__main__":
    main()
