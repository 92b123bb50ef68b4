"""A table of claims: the runs that they need, each made once, and the statistics that decide, each beside its bound.

Its TOML has `base`, a recipe; `arms`, by name what each changes of it; `claim`, each with rows; and `start`, the
diagnostic world and the seed of the policy that all runs begin with, where the recipe names none that there is.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from ... import __version__
from ...agents.evaluation.scores import grouped
from ...agents.evaluation.statistics import CONFIDENCE, Estimate, mean_of
from ...agents.journal.trees import make_writable_folder, write_file
from ...agents.models.folder import read_toml
from ...envs.reserved_choices import refuse_unnamed
from ...envs.tasks import did_you_mean
from ..cli.analyse import NAME
from ..metrics.entropy_analysis import QUANTITIES, Series, analyse, reward_law, spearman
from ..runs.config import from_mapping, reserved_of, reserved_of_recipe, revision
from .diagnosis import Case, find_case
from .measure import Final
from .outcomes import NONE, Table, as_text
from .plan import PLAN, Comparison, Trial, folder_of, train, try_runs

TABLES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}
START = "start"  # in the folder
STATISTICS = ("mean", "change", "speed", "error", "r2", *(f"rank:{name}" for name in QUANTITIES))
FILES = ("claims.md", "claims.json")
WINDOW = 5  # steps, whose means the law of reward is fitted to
NOTE = (
    "Mean over seeds ± half the 95 % t-interval, differences pairwise by seed. A row holds where the whole interval is "
    "past its bound, a claim where all its rows do. Not corrected for the number of rows."
)


@dataclass(frozen=True)
class Row:
    """A `statistic` of an arm, or its difference to another's on the same seeds, that must be past `bound`."""

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


def plan(
    table: str, seeds: int, first: int, out: str, resume: bool, allowed: Collection[str] = ()
) -> Study:
    """Check all that can be wrong before the first run.

    Args:
        table: The name of one of `TABLES`, or the path of a TOML file.
        seeds: How many runs each arm has.
        first: The first seed.
        out: The folder; "" for the first free one of runs/claims, ….
        resume: Whether to continue in `out`.
        allowed: Code that the command names, and that the table may therefore ask for, as `reserved_of` has it.

    Raises:
        ValueError, OSError: What is wrong, and the fix.
    """
    if seeds < 1 or first < 0:
        raise ValueError(
            f"seeds is {seeds} and seed {first}; there must be at least 1, and the first be 0 or more"
        )
    if table not in TABLES and not table.endswith(".toml"):
        raise ValueError(
            f"there is no table {table!r}; {did_you_mean(table, TABLES)}tables are {', '.join(TABLES)}"
        )
    data = read_toml(path := TABLES.get(table, Path(table)))
    if wrong := data.keys() - {"base", "arms", "claim", "start"}:
        raise ValueError(
            f"{path}: unknown key {sorted(wrong)[0]!r}; keys are base, arms, claim and start"
        )
    try:
        arms = {
            arm: from_mapping({**data["base"], **own}, f"{path}, arm {arm}")
            for arm, own in data["arms"].items()
        }
        claims = tuple(_claim(f"{path}, {one['name']}", one, arms) for one in data["claim"])
        start = (
            (find_case(data["start"]["world"]), data["start"]["seed"]) if "start" in data else None
        )
    except KeyError as error:
        raise ValueError(f"{path}: the key {error} is missing") from None
    for arm, config in arms.items():
        if not re.fullmatch(r"\w[\w.+-]*", arm):  # its runs are in a folder of this name
            raise ValueError(
                f"{path}: an arm is called {arm!r}; use letters, digits, '.', '+', '-' and '_'"
            )
        asked = [*reserved_of(config), *reserved_of_recipe(config, str(path))]
        refuse_unnamed(asked, allowed, f"{path}, arm {arm},")
    try_runs(arms)
    folder = folder_of("claims", out, resume, (PLAN, *FILES))
    if start:
        arms = {name: config.changed(policy=str(folder / START)) for name, config in arms.items()}
    judged = tuple(range(first, first + seeds))
    study = Study(
        Comparison(folder, table, arms, judged, final=Final(episodes=0), measures_effect=False),
        claims,
        start,
    )
    study.comparison.check()
    make_writable_folder(folder)
    study.comparison.write()
    return study


def _claim(where: str, data: Mapping[str, Any], arms: Mapping[str, Any]) -> Claim:
    if not data["rows"]:
        raise ValueError(f"{where}: it has no rows")
    for values in data["rows"]:
        if values["of"] not in STATISTICS or (
            values["of"] == "error" and values.get("target", 0.0) <= 0
        ):
            fix = f"name one of {', '.join(STATISTICS)}; error needs a target above 0"
            raise ValueError(f"{where}: a row is of {values['of']!r}; {fix}")
        if wrong := values.keys() - {field.name for field in fields(Row)}:
            raise ValueError(f"{where}: a row has no {sorted(wrong)[0]!r}")
        for arm in {values["arm"], values.get("than", values["arm"])} - arms.keys():
            raise ValueError(
                f"{where}: there is no arm {arm!r}; {did_you_mean(arm, arms)}arms are {', '.join(arms)}"
            )
    return Claim(
        data["name"], data["says"], data["paper"], tuple(Row(**values) for values in data["rows"])
    )


def make(claims: Sequence[Claim], trial: Trial) -> str:
    """Make a run, or continue it, analyse it, and return a line on it."""
    line = train(trial)
    if not trial.finished:
        return line
    entropy = list(analysed(claims, trial)["entropy"].values())
    return f"{line}, entropy {entropy[0]:.3f} → {entropy[-1]:.3f}"


def analysed(claims: Sequence[Claim], trial: Trial) -> Mapping[str, Series]:
    """Return what was measured of a finished run, from its file or made now; Self-BLEU where a claim asks for it."""
    if not (file := trial.folder / NAME).is_file():
        rows = [row for claim in claims for row in claim.rows if row.arm == trial.method]
        analyse([trial.folder], file, any(row.of == "rank:self_bleu" for row in rows))
    (data,) = json.loads(file.read_text("utf-8"))["runs"]
    return {
        name: {int(step): value for step, value in values.items()}
        for name, values in data["series"].items()
    }


def statistic(row: Row, found: Mapping[str, Series]) -> float | None:
    """Return the statistic of a row over a run's steps; None where it cannot be had. Entropies are token means, nats.

    mean: of entropy over the steps
    change: mean of the last fifth of the steps less the first step
    speed: mean distance from the first step
    error: |mean of the last third - target| / target
    rank:QUANTITY: rank correlation of entropy and that over the steps
    r2: of R = -a·exp(H) + b, fitted to means of `WINDOW` steps; 0 where a is not positive
    """
    entropy = found["entropy"]
    values = [entropy[step] for step in sorted(entropy)]
    if len(values) < 2:
        return None
    if row.of == "mean":
        return fmean(values)
    if row.of == "change":
        return fmean(values[-max(len(values) // 5, 1) :]) - values[0]
    if row.of == "speed":
        return fmean(abs(value - values[0]) for value in values[1:])
    if row.of == "error":
        return abs(fmean(values[-max(len(values) // 3, 1) :]) - row.target) / row.target
    if row.of == "r2":
        law = reward_law(windows(entropy), windows(found["reward"]))
        return None if law is None else law["r2"] if law["a"] > 0 else 0.0
    return spearman(entropy, found[row.of.removeprefix("rank:")])


def windows(values: Series) -> dict[int, float]:
    parts = grouped(values, lambda step: (step - 1) // WINDOW)
    return {
        number: fmean(values[step] for step in part)
        for number, part in parts.items()
        if len(part) == WINDOW
    }


@dataclass(frozen=True)
class Judged:
    """A row and its values by seed; `holds`: the mean is past the bound, `confirmed`: the whole interval is."""

    row: Row
    values: Mapping[int, float]

    @property
    def mean(self) -> Estimate | None:
        return mean_of(self.values.values())

    @property
    def holds(self) -> bool:
        return self.mean is not None and self.row.sign * (self.mean.value - self.row.bound) > 0

    @property
    def confirmed(self) -> bool:
        if self.mean is None or self.mean.half is None:  # a single seed
            return False
        return self.row.sign * (self.mean.value - self.row.bound) > self.mean.half


def judge(study: Study) -> dict[str, list[Judged]]:
    """Return by claim its rows with what the finished runs say."""
    done = [trial for trial in study.comparison.trials if trial.finished]
    found = {(trial.method, trial.config.seed): analysed(study.claims, trial) for trial in done}

    def values(row: Row) -> Iterator[tuple[int, float]]:
        for seed in study.comparison.seeds:
            runs = [found.get((arm, seed)) for arm in (row.arm, row.than) if arm]
            known = [
                value for series in runs if series and (value := statistic(row, series)) is not None
            ]
            if len(known) == len(runs):
                yield seed, known[0] - (known[1] if row.than else 0.0)

    return {
        claim.name: [Judged(row, dict(values(row))) for row in claim.rows] for claim in study.claims
    }


def write(study: Study) -> Table:
    found, rows, data = judge(study), list[tuple[str, ...]](), dict[str, Any]()
    for claim in study.claims:
        judged, confirmed = (
            all(each) for each in zip(*((one.values, one.confirmed) for one in found[claim.name]))
        )
        first = (
            claim.says,
            "confirmed" if confirmed else "**not confirmed**" if judged else "no runs yet",
        )
        for one in found[claim.name]:
            holds = (
                ("yes" if one.confirmed else "mean only" if one.holds else "no")
                if one.values
                else NONE
            )
            rows.append(
                (*first, str(one.row), as_text(one.mean, ".3f"), str(len(one.values)), holds)
            )
            first = ("", "")
        own = [
            asdict(one.row)
            | {
                "values": one.values,
                "mean": one.mean and asdict(one.mean),
                "confirmed": one.confirmed,
            }
            for one in found[claim.name]
        ]
        about = {
            "says": claim.says,
            "paper": claim.paper,
            "confirmed": confirmed if judged else None,
        }
        data[claim.name] = about | {"rows": own}
    table = Table(
        "Claims", ("claim", "verdict", "must hold", "found", "seeds", "holds"), rows, NOTE
    )
    what = {
        "version": __version__,
        "revision": revision(),
        "confidence": CONFIDENCE,
        **study.comparison.described(),
    }
    head = f"turngym {__version__}, revision {revision()[:12]}, table {study.comparison.base}.\n\n"
    write_file(study.comparison.folder / FILES[0], head + table.markdown())
    write_file(
        study.comparison.folder / FILES[1], json.dumps({**what, "claims": data}, indent=1) + "\n"
    )
    return table
