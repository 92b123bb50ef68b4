"""What trained policies do in the end, beside what so many seeds can tell of it, and the report of a comparison.

Its folder has `compare.md`, `compare.json` and `compare.png`, made from the run folders.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import rich.table

from ... import __version__
from ...agents.evaluation import statistics as tests
from ...agents.evaluation.scores import Interval
from ...agents.evaluation.statistics import CONFIDENCE, LEVEL, POWER, Estimate, mean_of
from ...agents.journal.trees import write_file
from ...tools.files import read_text
from ..report.picture import draw, save
from ..runs.config import revision
from .measure import Measured
from .plan import REPORTS, Comparison
from .results import (
    ACTIONS,
    COSTS,
    MethodEffect,
    MethodResult,
    effects,
    method_results,
    percent,
    read_history,
)

SURE, RARE = (
    0.9,
    0.1,
)  # shares of seeds that are solved by a method that helps, and by one that does not
NONE = "–"
Ahead = tuple[Estimate | None, float | None]  # points more than the reference, and their p
COMPARED = {
    "success": ("sampled", "success"),
    "greedy": ("greedy", "success"),
    "pass@8": ("sampled", "pass_at_8"),
}


@dataclass(frozen=True)
class Table:
    """A table of text."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""

    def markdown(self) -> str:
        lines = [self.header, tuple("---" for _ in self.header), *self.rows]
        table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        return f"## {self.title}\n\n{table}\n" + (f"\n{self.note}\n" if self.note else "")

    def __rich__(self) -> rich.table.Table:
        left: Any = {
            "title_justify": "left",
            "caption_justify": "left",
            "title_style": "bold",
            "box": None,
        }
        drawn = rich.table.Table(title=self.title, caption=self.note, **left)
        for place, name in enumerate(self.header):
            drawn.add_column(name, justify="right" if place else "left", overflow="fold")
        for row in self.rows:
            drawn.add_row(*row)
        return drawn


def foresight(seeds: int, effect: float = 0.0, sd: float = 0.0, methods: int = 2) -> str:
    """Return what so many seeds show; `effect` (0: none) is a wanted difference, `sd` its deviation, in points."""
    if effect:
        seen, least = _seen(seeds, effect, sd, methods), seeds_for_effect(effect, sd, methods)
        what = f"a difference of {effect:g} points (sd {sd:.2g}, {max(methods - 1, 1)} tests)"
    else:
        seen, what = (
            tests.power(seeds, SURE, RARE),
            f"{SURE:.0%} against {RARE:.0%} of seeds solved",
        )
        least = tests.fewest(lambda n: tests.power(n, SURE, RARE), f"{SURE} against {RARE}")
    line = f"{seeds} seeds: all solved against none is p = {tests.fisher(seeds, seeds, 0, seeds):.2g}; "
    line += f"{what} is seen (p ≤ {LEVEL}) with power {seen:.0%}"
    return (
        line if seen >= POWER else f"{line}, less than the wanted {POWER:.0%}: take --seeds {least}"
    )


def seeds_for_effect(effect: float, sd: float, methods: int) -> int:
    """Return the seeds that see a difference between methods. Raises ValueError where it takes too many."""
    return tests.fewest(
        lambda n: _seen(n, effect, sd, methods), f"a difference of {effect:g} (sd {sd:.2g})"
    )


def _seen(seeds: int, effect: float, sd: float, methods: int) -> float:
    """Return the power at the level of the smallest of several p, which Holm's correction multiplies."""
    return tests.paired_power(seeds, effect, sd, LEVEL / max(methods - 1, 1))


def planned(
    seeds: int | None, effect: float | None, sd: float | None, earlier: str | None, methods: int
) -> tuple[int, float]:
    """Return the number of seeds, and the deviation (points) it is planned with. Raises ValueError or OSError."""
    if effect is None:
        if sd is not None or earlier is not None:
            raise ValueError(
                "--sd and --earlier plan seeds for an effect; name it: --effect POINTS"
            )
        return 3 if seeds is None else seeds, 0.0
    if sd is None and earlier is None:
        raise ValueError(
            "--effect needs to know how much seeds differ: --sd POINTS, or --earlier FOLDER"
        )
    found = sd if sd is not None else spread(Path(str(earlier)))
    for name, value in (("effect", effect), ("sd", found)):
        if not (math.isfinite(value) and 0 < value <= 100):
            raise ValueError(f"{name} is {value:g}; it is in points, above 0 and at most 100")
    return seeds_for_effect(effect, found, methods) if seeds is None else seeds, found


def spread(folder: Path) -> float:
    """Return the largest deviation (points) of a difference in `folder`. Raises ValueError or OSError."""
    try:
        results = json.loads(read_text(folder / "compare.json"))["results"]
        ends = ((one.get("final", {}).get("ahead", {}), one) for one in results.values())
        found = (ahead.get("success") or one["ahead_of_reference"] for ahead, one in ends)
        known = [one for one in found if one and one.get("half")]
        sds = [one["half"] / tests.t_quantile(one["n"] - 1) * math.sqrt(one["n"]) for one in known]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / 'compare.json'} cannot be read ({error}); give --sd") from None
    if not sds:
        raise ValueError(f"no method in {folder} has two seeds that differ; give --sd")
    return 100 * float(max(sds))


@dataclass(frozen=True)
class Summary:
    """What the finished runs of a method came to, beside those of the reference on the same seeds."""

    sampled: dict[int, Measured]  # by seed
    greedy: dict[int, Measured]
    seconds: dict[int, float]  # of a processor
    clipped: Estimate | None  # share of slots, both bounds, over steps
    solved: int
    p_solved: float | None = None  # corrected, as all p; None of the reference
    ahead: Mapping[str, Ahead] = field(default_factory=dict)  # difference and p

    def to_json(self) -> dict[str, Any]:
        ahead = {
            name: {**(asdict(mean) if mean else {}), "p": p}
            for name, (mean, p) in self.ahead.items()
        }
        runs = {
            str(seed): {
                "sampled": asdict(one),
                "greedy": asdict(self.greedy[seed]),
                "seconds": self.seconds[seed],
            }
            for seed, one in self.sampled.items()
        }
        return {
            "solved": self.solved,
            "of": len(runs),
            "p_solved": self.p_solved,
            "ahead": ahead,
            "runs": runs,
        }


def outcomes(comparison: Comparison) -> dict[str, Summary]:
    """Return by method what its finished runs came to. Raises OSError or ValueError where one cannot be read."""
    final, peer, found = comparison.final, comparison.reference, dict[str, Summary]()
    for method in comparison.methods:
        own = [
            one
            for one in comparison.trials
            if one.method == method and final.episodes and one.finished
        ]
        results = {trial.config.seed: trial.result() for trial in own}
        sampled, greedy = (
            {s: Measured(**one[how]) for s, one in results.items()} for how in ("sampled", "greedy")
        )
        seconds = {seed: one["seconds"] for seed, one in results.items()}
        clips = [read_history(trial.folder).clipped for trial in own]
        clipped = mean_of(clip for clip in clips if clip is not None)
        found[method] = Summary(
            sampled, greedy, seconds, clipped, sum(map(final.solved, sampled.values()))
        )
    counts = {name: (one.solved, len(one.sampled)) for name, one in found.items()}
    others = [name for name in found if name != peer]
    exact = tests.holm({name: tests.fisher(*counts[name], *counts[peer]) for name in others})
    ahead = {what: _ahead(found, peer, *place) for what, place in COMPARED.items()}
    by_name = {name: {what: one[name] for what, one in ahead.items()} for name in others}
    return {
        name: replace(one, p_solved=exact.get(name), ahead=by_name.get(name, {}))
        for name, one in found.items()
    }


def _ahead(found: Mapping[str, Summary], peer: str, how: str, of: str) -> dict[str, Ahead]:
    values = {
        name: {
            seed: value
            for seed, own in getattr(one, how).items()
            if (value := getattr(own, of)) is not None
        }
        for name, one in found.items()
    }
    means = {
        name: mean_of(
            value - values[peer][seed] for seed, value in own.items() if seed in values[peer]
        )
        for name, own in values.items()
        if name != peer
    }
    chances = tests.holm({name: tests.t_test(mean) for name, mean in means.items()})
    return {name: (mean, chances[name]) for name, mean in means.items()}


def final_tables(
    comparison: Comparison,
    found: Mapping[str, Summary],
    title: str,
    note: str,
    starts: Sequence[Measured] = (),
) -> list[Table]:
    """Return the tables of what policies do in the end (and did at `starts`) and of differences; no empty columns."""
    if not starts and not any(one.sampled for one in found.values()):
        return []
    peer, final = comparison.reference, comparison.final
    names = "method solved p success greedy pass@8 p(tool) skill valid entropy clipped"
    header = (*names.split(), "CPU s")
    rows = [("start", NONE, NONE, *_shares(starts, ()), NONE, NONE)] if starts else []
    for name, one in found.items():
        shares = _shares([*one.sampled.values()], [*one.greedy.values()])
        clipped = NONE if one.clipped is None else f"{100 * one.clipped.value:.1f}"
        seconds = f"{fmean(one.seconds.values()):.0f}" if one.seconds else NONE
        rows.append(
            (
                name,
                f"{one.solved}/{len(one.sampled)}",
                _chance(one.p_solved),
                *shares,
                clipped,
                seconds,
            )
        )
    needed = f"a success of at least {final.success:.0%}"
    needed += f" and pass@8 of {final.pass_at_8:.0%}" if final.pass_at_8 else ""
    counts = sorted(
        {measured.episodes for one in found.values() for measured in one.sampled.values()}
    )
    episodes = " or ".join(f"{count:,}" for count in counts) or "0"
    note += (
        f"Solved: {needed}. p: Fisher's exact test of seeds solved against {peer}, corrected (Holm). Shares in %, "
        f"means over seeds ± half the 95 % t-interval, of {episodes} held-out episodes at temperature 1; entropy of "
        "turns 0, 1, … in nats; clipped: share of slots past a bound, over steps."
    )
    kept = [i for i in range(len(header)) if i < 4 or any(row[i] not in (NONE, "") for row in rows)]
    tables = [
        Table(
            title,
            tuple(header[i] for i in kept),
            [tuple(row[i] for i in kept) for row in rows],
            note,
        )
    ]
    if others := [(name, one) for name, one in found.items() if name != peer]:
        cells = [
            (
                name,
                *(
                    cell
                    for mean, p in one.ahead.values()
                    for cell in (as_text(mean, "+.1f", 100), _chance(p))
                ),
            )
            for name, one in others
        ]
        columns = ("method", *(cell for what in COMPARED for cell in (what, "p")))
        note = f"Points ahead of {peer}, pairwise by seed ± half the 95 % t-interval; p: paired t-test, corrected (Holm)."
        tables.append(Table(f"{title}: differences to {peer}", columns, cells, note))
    return tables


def _shares(sampled: Sequence[Measured], greedy: Sequence[Measured]) -> tuple[str, ...]:
    success = as_text(mean_of(one.success for one in sampled), ".1f", 100)
    turns = range(max((len(one.entropy) for one in sampled), default=0))
    entropy = (
        fmean(one.entropy[turn] for one in sampled if len(one.entropy) > turn) for turn in turns
    )
    others = (
        _mean(getattr(one, name) for one in sampled)
        for name in ("pass_at_8", "tool", "skill", "valid")
    )
    return (
        success,
        _mean(one.success for one in greedy),
        *others,
        " ".join(f"{value:.2f}" for value in entropy),
    )


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * fmean(known):.1f}" if known else NONE


def as_text(mean: Estimate | None, form: str, scale: float = 1.0) -> str:
    """Return a mean with the half width of its interval where it has one."""
    if mean is None:
        return NONE
    half = "" if not mean.half else f" ± {format(scale * mean.half, form.removeprefix('+'))}"
    return format(scale * mean.value, form) + half


def _chance(p: float | None) -> str:
    return NONE if p is None else f"{p:.2g}"


def write_report(comparison: Comparison) -> list[Table]:
    """Write the three files from what has finished by now, and return the tables. Raises OSError or ValueError."""
    found, what, final = method_results(comparison), comparison.described(), outcomes(comparison)
    changed = effects(comparison)
    made = tables(found, comparison.reference, len(comparison.seeds))
    made[1:1] = [
        *effect_tables(changed, comparison.reference),
        *final_tables(comparison, final, "Final validation", ""),
    ]
    write_file(comparison.folder / REPORTS[0], markdown(what, made))
    data = {"version": __version__, "revision": revision(), "confidence": CONFIDENCE, **what}
    data["results"] = {
        name: {**one.to_json(), "final": final[name].to_json()} for name, one in found.items()
    }
    for name, one in changed.items():
        advice = one.advice(name, comparison.reference) if one.changed_nothing else ""
        data["results"][name]["effect"] = {**one.to_json(), "advice": advice}
    write_file(
        comparison.folder / REPORTS[1],
        json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
    )
    idle = {name: one.described() for name, one in changed.items() if one.changed_nothing}
    save(draw(found, idle), comparison.folder / REPORTS[2])
    return made


def effect_tables(
    changed: Mapping[str, MethodEffect], reference: str, title: str = "Effect"
) -> list[Table]:
    """Return the table of what methods changed beside the reference; none before a seed is finished by both."""
    known = {name: one for name, one in changed.items() if one.first_other}
    if not known:
        return []
    rows = [
        (name, _percent(one.own_term, 0), _percent(one.own_term, -1), one.described())
        for name, one in known.items()
    ]
    advice = [one.advice(name, reference) for name, one in known.items() if one.changed_nothing]
    note = (
        f"Own term: |g - g_ref| / |g|, where g is the gradient and g_ref that of the loss of {reference} on the same "
        f"paths, in the first and the last of steps 1, 2, 4, 8, …; {NONE}: nothing was learned in them, or {reference} "
        "needs what the method does not compute. Episodes are compared with those of the same seed, token by token."
    )
    header = ("method", "own term, first (%)", "own term, last (%)", f"episodes beside {reference}")
    return [Table(f"{title}: what methods changed", header, rows, "\n\n".join([*advice, note]))]


def _percent(own_term: Mapping[int, float], place: int) -> str:
    return percent(own_term[sorted(own_term)[place]]) if own_term else NONE


def tables(found: Mapping[str, MethodResult], reference: str, seeds: int) -> list[Table]:
    return [_success(found, reference, seeds), *_spent(found, reference), *_by_turn(found)]


def markdown(what: Mapping[str, Any], made: list[Table]) -> str:
    shared, methods = what["shared"], what["methods"]
    budget = f", at most {shared['token_budget']:,} tokens" if shared["token_budget"] else ""
    lines = [
        f"# {', '.join(methods)} on {what['on']}\n",
        f"{shared['env']}, policy {shared['policy']}; {shared['steps']} steps{budget}; "
        f"seeds {', '.join(map(str, what['seeds']))}. Held-out success: {shared['eval_tasks']} tasks every "
        f"{shared['eval_every']} steps. turngym {__version__}, revision {revision()[:12]}.\n",
    ]
    for name, values in methods.items():
        lines.append(f"- {name}: " + ", ".join(f"{key} `{value}`" for key, value in values.items()))
    lines += ["", "![held-out success by tokens, entropy by turn](compare.png)\n"]
    return "\n".join([*lines, *(table.markdown() for table in made)])


def _success(found: Mapping[str, MethodResult], reference: str, seeds: int) -> Table:
    header = ("method", "seeds", "before (%)", "after (%)", "pooled (%)", f"ahead of {reference}")
    rows = []
    for method, one in found.items():
        ahead = "" if method == reference else as_text(one.ahead, "+.1f", 100)
        means = [_share(one.success(at)) for at in (0, -1)]
        pooled = (
            f"{str(every[0]).replace(' %', '')} of {every[2]}"
            if (every := one.pooled(-1))
            else NONE
        )
        rows.append((method, f"{len(one.histories)}/{seeds}", *means, pooled, ahead))
    note = (
        "Mean over the seeds that finished [95 % t-interval]; pooled: after training, over the episodes of all seeds "
        f"[Wilson's 95 % interval]. Ahead: points more than {reference} after training, pairwise by seed ± half its 95 "
        "% t-interval."
    )
    return Table("Held-out success", header, rows, note)


def _spent(found: Mapping[str, MethodResult], reference: str) -> list[Table]:
    columns = ("steps", "tokens", "tool calls", "agent turns", "minutes")
    whole = [
        (method, *(_cost(one.cost(name), name) for name in COSTS)) for method, one in found.items()
    ]
    until = [
        (
            method,
            f"{len(one.reached)}/{one.compared}",
            *(_cost(one.cost_until(name), name) for name in COSTS),
        )
        for method, one in found.items()
    ]
    note = (
        f"Up to the first validation with the success that {reference} ended with on the same seed; seeds: where there "
        "was one, and what the means are of."
    )
    half = "By a run, mean over seeds ± half the 95 % t-interval; validations are not counted."
    return [
        Table("Spent on training", ("method", *columns), whole, half),
        Table(
            f"Spent until the final success of {reference}",
            ("method", "seeds", *columns),
            until,
            note,
        ),
    ]


def _by_turn(found: Mapping[str, MethodResult]) -> list[Table]:
    turns = [(method, one, turn) for method, one in found.items() for turn in one.turns]
    forms = {"mean": ".3f", "variance": ".2g", "jumps": ".2g"}
    entropy = [
        (
            method,
            str(turn),
            *(as_text(one.entropy(turn, name), form) for name, form in forms.items()),
        )
        for method, one, turn in turns
    ]
    acted = [
        (method, str(turn), [one.acted(name, turn) for name in ACTIONS])
        for method, one, turn in turns
    ]
    actions = [
        (method, turn, *(as_text(one, ".3f") for one in means))
        for method, turn, means in acted
        if any(means)
    ]
    note = (
        "Token mean of each turn index, turn 0 first, over the steps of a run; then mean over seeds ± half the 95 % "
        "t-interval. Without trend: half the mean squared change from one step to the next."
    )
    about = (
        "Means over the steps of a run, then over seeds ± half the 95 % t-interval; nats, valid actions as a share. "
        "The page on metrics has the formulas."
    )
    header = ("method", "turn", "mean (nats)", "variance between steps", "without trend")
    named = ("method", "turn", *(name.replace("_", " ") for name in ACTIONS))
    made = [
        Table("Entropy by turn", header, entropy, note),
        Table("Actions by turn", named, actions, about),
    ]
    return made if actions else made[:1]


def _share(mean: Estimate | None) -> str:
    if mean is None or not mean.half:
        return as_text(mean, ".1f", 100)
    low, high = max(mean.value - mean.half, 0.0), min(mean.value + mean.half, 1.0)
    return str(Interval(mean.value, low, high)).replace(" %", "")


def _cost(mean: Estimate | None, name: str) -> str:
    return as_text(mean, ",.1f", 1 / 60) if name == "seconds" else as_text(mean, ",.0f")
