"""The command `turngym warmup`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from ...envs.options import EnvOptions
from ...tools.progress import Progress
from .evaluate import Environment
from .settings import LoraOptions, MachineOptions, WarmupOptions
from .terminal import Shown, console, mistakes

if TYPE_CHECKING:
    from ..warmup.pretrain import WarmupStep


@dataclass(frozen=True)
class Warmup(Shown):
    """Train on demonstrations of an environment's expert: a new small policy, or LoRA weights of the model `--policy`.

    With `--policy` the defaults of episodes, steps, batch, lr and noise are those of fine-tuning: 160, 40, 4, 0.001, 0.
    """

    env: tyro.conf.Positional[str] = "turngym/Household-v0"
    """Environment id."""
    out: Path = Path("runs/warm")
    """Folder to write. It can be used as `--policy`."""
    training: tyro.conf.OmitArgPrefixes[WarmupOptions] = WarmupOptions()
    policy: str = ""
    """The model whose LoRA weights learn, as `turngym eval` takes it; by default a small one is made from nothing."""
    data: str = ""
    """JSONL file of conversations (`messages`) to learn from in place of the environment's; for `--policy` only."""
    lora: tyro.conf.OmitArgPrefixes[LoraOptions] = LoraOptions()
    device: str = "cpu"
    """`cpu`, `cuda` or `mps`; for `--policy` only."""
    dtype: str = "float32"
    """Data type of the frozen weights: `float32` or `bfloat16`."""
    slow_dtype: bool = False
    """Take `bfloat16` also on a processor that is slower with it, for the memory that it spares."""
    resume: bool = False
    """Continue the warm-up in `--out`."""
    options: Environment = EnvOptions()

    def run(self) -> int:
        with self.shown() as notes:
            with mistakes(), Progress("getting ready"):
                note, updates = self._finetune() if self.policy else self._pretrain()
            if note:
                notes.print(note, markup=False, soft_wrap=True)
            try:
                with mistakes((ValueError, OSError)):
                    for said in (at.note for at in updates if at.note):
                        notes.print(said)
            except KeyboardInterrupt:
                console.print("interrupted; the same command with --resume continues")
                raise
        console.print(f"policy: {self.out}  (turngym eval {self.env} --policy {self.out})")
        return 0

    def _pretrain(self) -> tuple[str, Iterable[WarmupStep]]:
        from ..warmup.pretrain import Settings, prepare, run

        for name, other in (
            ("data", ""),
            ("lora", LoraOptions()),
            ("device", "cpu"),
            ("dtype", "float32"),
        ):
            if (value := getattr(self, name)) != other:
                raise ValueError(
                    f"{name} is {value!r}, which is for the LoRA weights of a model; add --policy"
                )
        settings = Settings(self.env, self.options.kwargs(), self.training)
        prepared = prepare(settings, self.out, resume=self.resume)
        return prepared.split.note, run(prepared)

    def _finetune(self) -> tuple[str, Iterable[WarmupStep]]:
        from ..warmup.finetune import Finetune, prepare, run

        machine = MachineOptions(self.device, self.dtype, self.training.threads, self.slow_dtype)
        options = self.options.kwargs()
        settings = Finetune(
            self.policy, self.env, options, self.data, self.training, self.lora, machine
        )
        prepared = prepare(settings, self.out, resume=self.resume)
        return prepared.split.note if prepared.split else "", run(prepared)
