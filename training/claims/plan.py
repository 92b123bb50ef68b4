"""A table of claims: the runs that they need, each made once, and the statistics that decide.

Its TOML has `base`, a recipe; `arms`, by name what each changes of it; `claim`, each with rows; and `start`, the
diagnostic world and the seed of the policy that all runs begin with, where the recipe names none that there is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ...agents.journal import writable
from ...agents.model_folder import read_toml
from ...envs.tasks import did_you_mean
from ..analyse import QUANTITIES
from ..comparison.measure import Final
from ..comparison.plan import Comparison, folder_of, try_runs
from ..config import from_mapping
from ..diagnosis.begin import begin
from ..diagnosis.plan import Case, find_case

TABLES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}
START = "start"  # in the folder
STATISTICS = ("mean", "change", "speed", "error", "r2", *(f"rank:{name}" for name in QUANTITIES))


@dataclass(frozen=True)
class Row:
    """A `judge.statistic` of an arm, or its difference to another's on the same seeds, that must be past `bound`."""

    of: str
    arm: str
    than: str = ""
    sign: int = 1  # 1: above the bound, -1: below
    bound: float = 0.0
    target: float = 0.0  # of an `error`, nats

    def __str__(self) -> str:
        other = f" less that of {self.than}" if self.than else ""
        return f"{self.of} of {self.arm}{other} {'>' if self.sign > 0 else '<'} {self.bound:g}"


@dataclass(frozen=True)
class Claim:
    """What a paper says, and the rows that must all hold for it."""

    name: str
    says: str
    paper: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Study:
    """A checked table; `start` is the world and the seed of the policy that is made for it."""

    comparison: Comparison
    claims: tuple[Claim, ...]
    start: tuple[Case, int] | None

    def make_start(self) -> None:
        """Make the policy that all runs begin with, where it is not whole. Raises ValueError outside its gates."""
        if self.start:
            begin(*self.start, self.comparison.folder / START)


def plan(table: str, seeds: int, first: int, out: str, resume: bool) -> Study:
    """Check all that can be wrong before the first run. Raises ValueError or OSError: what is wrong, and the fix."""
    if seeds < 1 or first < 0:
        raise ValueError(f"seeds is {seeds} and seed {first}; there must be at least 1, and the first be 0 or more")
    if table not in TABLES and not table.endswith(".toml"):
        raise ValueError(f"there is no table {table!r}; {did_you_mean(table, TABLES)}tables are {', '.join(TABLES)}")
    data = read_toml(path := TABLES.get(table, Path(table)))
    if wrong := data.keys() - {"base", "arms", "claim", "start"}:
        raise ValueError(f"{path}: unknown key {sorted(wrong)[0]!r}; keys are base, arms, claim and start")
    try:
        arms = {
            name: from_mapping({**data["base"], **own}, f"{path}, arm {name}") for name, own in data["arms"].items()
        }
        claims = tuple(_claim(f"{path}, {one['name']}", one, arms) for one in data["claim"])
        start = (find_case(data["start"]["world"]), data["start"]["seed"]) if "start" in data else None
    except KeyError as error:
        raise ValueError(f"{path}: the key {error} is missing") from None
    try_runs(arms)
    folder = folder_of("claims", out, resume)
    if start:
        arms = {name: config.changed(policy=str(folder / START)) for name, config in arms.items()}
    judged = tuple(range(first, first + seeds))
    study = Study(Comparison(folder, table, arms, judged, final=Final(episodes=0)), claims, start)
    study.comparison.check()
    writable(folder)
    study.comparison.write()
    return study


def _claim(where: str, data: Mapping[str, Any], arms: Mapping[str, Any]) -> Claim:
    if not data["rows"]:
        raise ValueError(f"{where}: it has no rows")
    for values in data["rows"]:
        if values["of"] not in STATISTICS or (values["of"] == "error" and values.get("target", 0.0) <= 0):
            fix = f"name one of {', '.join(STATISTICS)}; error needs a target above 0"
            raise ValueError(f"{where}: a row is of {values['of']!r}; {fix}")
        if wrong := values.keys() - {field.name for field in fields(Row)}:
            raise ValueError(f"{where}: a row has no {sorted(wrong)[0]!r}")
        for arm in {values["arm"], values.get("than", values["arm"])} - arms.keys():
            raise ValueError(f"{where}: there is no arm {arm!r}; {did_you_mean(arm, arms)}arms are {', '.join(arms)}")
    return Claim(data["name"], data["says"], data["paper"], tuple(Row(**values) for values in data["rows"]))
