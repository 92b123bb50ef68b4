"""The command `turngym export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ...agents.cli.terminal import Shown, console, mistakes
from ...tools.progress import Progress
from ..runs.export import about_template, execute, prepare


@dataclass(frozen=True)
class Export(Shown):
    """Write what a run has learned as a folder that peft, transformers and vLLM load, or an evaluation as a file."""

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder, whose newest checkpoint is taken; with `--to` the folder of an evaluation."""
    out: Path | None = None
    """What to write. By default RUN/export, and RUN/merged with `--merged`; with `--to` a file in the folder."""
    to: Literal["model", "parquet", "jsonl", "inspect"] = "model"
    """Of an evaluation: `parquet` (a row for each episode), `jsonl` (conversations, as `messages`) or `inspect` (a log
    of Inspect AI)."""
    merged: bool = False
    """Write the whole model with the LoRA update in its weights, in place of the adapter."""

    def run(self) -> int:
        with self.shown(), mistakes(), Progress("exporting", text=str(self.run_folder)):
            if self.merged and self.to != "model":
                raise ValueError(
                    f"--to {self.to} is for an evaluation, and --merged for a run; leave one of them out"
                )
            about = list[str]()
            if self.to != "model":
                from ...agents.evaluation.exports import export

                written = export(self.run_folder, self.to, self.out)
            else:
                out = self.out or self.run_folder / ("merged" if self.merged else "export")
                prepared = prepare(self.run_folder, out, self.merged)
                written, about = execute(prepared), about_template(prepared.source)
        console.print(f"written: {written}", markup=False, soft_wrap=True)
        for sentence in about:
            console.print(f"chat template: {sentence}", markup=False, soft_wrap=True)
        return 0
