"""The report of a comparison: `compare.md`, `compare.json` and `compare.png` in its folder, from the run folders."""

import json
from collections.abc import Mapping
from typing import Any

from ... import __version__
from ...agents.journal import write_file
from ...agents.scores import Interval
from ...agents.significance import CONFIDENCE, Mean
from ..config import revision
from ..report.picture import draw, save
from .outcomes import NONE, Table, as_text, final_tables, outcomes
from .plan import Comparison
from .results import ACTIONS, COSTS, MethodResult, method_results

NAMES = tuple(f"compare.{ending}" for ending in ("md", "json", "png"))


def write_report(comparison: Comparison) -> list[Table]:
    """Write the three files from what has finished by now, and return the tables. Raises OSError or ValueError."""
    found, what, final = method_results(comparison), comparison.described(), outcomes(comparison)
    made = tables(found, comparison.reference, len(comparison.seeds))
    made[1:1] = final_tables(comparison, final, "Final validation", "")
    write_file(comparison.folder / NAMES[0], markdown(what, made))
    data = {"version": __version__, "revision": revision(), "confidence": CONFIDENCE, **what}
    data["results"] = {
        method: {**result.to_json(), "final": final[method].to_json()} for method, result in found.items()
    }
    write_file(comparison.folder / NAMES[1], json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    save(draw(found), comparison.folder / NAMES[2])
    return made


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
        pooled = f"{str(every[0]).replace(' %', '')} of {every[2]}" if (every := one.pooled(-1)) else NONE
        rows.append((method, f"{len(one.histories)}/{seeds}", *means, pooled, ahead))
    note = (
        "Mean over the seeds that finished [95 % t-interval]; pooled: after training, over the episodes of all seeds "
        f"[Wilson's 95 % interval]. Ahead: points more than {reference} after training, pairwise by seed ± half its 95 "
        "% t-interval."
    )
    return Table("Held-out success", header, rows, note)


def _spent(found: Mapping[str, MethodResult], reference: str) -> list[Table]:
    columns = ("steps", "tokens", "tool calls", "agent turns", "minutes")
    whole = [(method, *(_cost(one.cost(name), name) for name in COSTS)) for method, one in found.items()]
    until = [
        (method, f"{len(one.reached)}/{one.compared}", *(_cost(one.cost_until(name), name) for name in COSTS))
        for method, one in found.items()
    ]
    note = (
        f"Up to the first validation with the success that {reference} ended with on the same seed; seeds: where there "
        "was one, and what the means are of."
    )
    title, half = (
        "Spent on training",
        "By a run, mean over seeds ± half the 95 % t-interval; validations are not counted.",
    )
    return [
        Table(title, ("method", *columns), whole, half),
        Table(f"Spent until the final success of {reference}", ("method", "seeds", *columns), until, note),
    ]


def _by_turn(found: Mapping[str, MethodResult]) -> list[Table]:
    turns = [(method, one, turn) for method, one in found.items() for turn in one.turns]
    forms = {"mean": ".3f", "variance": ".2g", "jumps": ".2g"}
    entropy = [
        (method, str(turn), *(as_text(one.entropy(turn, name), form) for name, form in forms.items()))
        for method, one, turn in turns
    ]
    acted = [(method, str(turn), [one.acted(name, turn) for name in ACTIONS]) for method, one, turn in turns]
    actions = [(method, turn, *(as_text(one, ".3f") for one in means)) for method, turn, means in acted if any(means)]
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
    made = [Table("Entropy by turn", header, entropy, note), Table("Actions by turn", named, actions, about)]
    return made if actions else made[:1]


def _share(mean: Mean | None) -> str:
    if mean is None or not mean.half:
        return as_text(mean, ".1f", 100)
    low, high = max(mean.value - mean.half, 0.0), min(mean.value + mean.half, 1.0)
    return str(Interval(mean.value, low, high)).replace(" %", "")


def _cost(mean: Mean | None, name: str) -> str:
    return as_text(mean, ",.1f", 1 / 60) if name == "seconds" else as_text(mean, ",.0f")
