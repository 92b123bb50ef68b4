"""Area `sandbox`: what the Python tool promises, with hostile programs, snippets, load, odd machines and a fuzz."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from turngym.tests.verify.rows import Row
from turngym.tools.python.tool import PythonTool

Part = Literal["all", "reach", "programs", "benign", "snippets", "load", "machines", "fuzz"]


@dataclass(frozen=True)
class Sandbox:
    """The boundary of the Python tool: programs that attack it, random and harmless ones, many calls, odd machines."""

    seed: int = 0
    """Keys the worlds, orders and names of the programs."""
    only: Part = "all"
    """Which part to count."""
    corpus: Path = Path("../shared/corpora/hostile_programs.jsonl")
    """Hostile programs, a JSONL file."""
    calls: Path = Path("../shared/data/tool_calls")
    """Real completions whose code is run: a JSONL file, or a folder of them."""
    level: Literal["namespaces", "landlock", "rlimits-only"] = "namespaces"
    """The boundary to ask for."""
    seeds: int = 3
    """Passes through the hostile programs; one that holds in some only does not hold."""
    runs: int = 100
    """Runs of each benign control."""
    load_calls: int = 5000
    """Calls under load."""
    threads: int = 32
    """Threads that make them."""
    environments: int = 512
    """Environments with a Python tool that are open at once."""
    programs: int = 400
    """Random programs of the fuzz."""
    program: int | None = None
    """The number of one random program, which alone is run and shown."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows of every part."""
        from turngym.tests.verify.sandbox.canary import canary_row
        from turngym.tests.verify.sandbox.corpus import read_programs
        from turngym.tests.verify.sandbox.fuzz import fuzz_rows
        from turngym.tests.verify.sandbox.load import load_rows, open_row
        from turngym.tests.verify.sandbox.machines import machine_row
        from turngym.tests.verify.sandbox.predicates import KNOWN
        from turngym.tests.verify.sandbox.programs import MEMORY, TIMEOUT, program_rows
        from turngym.tests.verify.sandbox.reach import reach_rows
        from turngym.tests.verify.sandbox.snippets import TIMEOUT as PATIENCE
        from turngym.tests.verify.sandbox.snippets import benign_row, snippet_row

        if self._counts("reach") and self.level != "rlimits-only":  # which refuses nothing
            yield from reach_rows(self._tool(60.0), self.level)
        if self._counts("programs", "benign"):
            programs = read_programs(self.corpus, KNOWN)
        if self._counts("programs"):
            yield from program_rows(
                programs, lambda keep: self._tool(TIMEOUT, MEMORY, keep), self.seed, self.seeds
            )
            yield canary_row(self._tool(60.0))
        if self._counts("benign"):
            yield benign_row(programs, self._tool(TIMEOUT, MEMORY), self.runs)
        if self._counts("snippets"):
            yield snippet_row(self.calls, self._tool(PATIENCE))
        if self._counts("load"):
            yield from load_rows(self._tool, self.seed, self.load_calls, self.threads)
            yield open_row(self.environments, self.level, self.seed)
        if self._counts("machines"):
            yield machine_row(self.seed, self.level)
        if self._counts("fuzz"):
            yield from fuzz_rows(self._tool, self.seed, self.programs, self.program)

    def _counts(self, *parts: Part) -> bool:
        return self.only in ("all", *parts)

    def _tool(self, timeout: float, memory_mb: int = 512, session: bool = False) -> PythonTool:
        return PythonTool(
            timeout=timeout, memory_mb=memory_mb, persistent=session, level=self.level
        )
