import json
import math
import re
from pathlib import Path

import pytest

from turngym.agents.cli.settings import flat
from turngym.training.methods import parse_methods
from turngym.training.metrics import alarms as module
from turngym.training.metrics.alarms import ADVICE, Alarm, Level, alarms
from turngym.training.runs import run
from turngym.training.runs.config import TrainConfig, read_recipe

TURN = "entropy_turn/1"


def lines(name, values):
    """The lines of a run, of which one metric has `values`."""
    return [{"step": 0, "valid/success": 0.5}] + [{"refused": "", name: value} for value in values]


def raised(name, values):
    """The kinds of alarm at each line, from the first step on."""
    run = lines(name, values)
    return [[found.kind for found in alarms(run[: end + 1])] for end in range(1, len(run))]


def first(kinds):
    return next((step for step, found in enumerate(kinds, 1) if found), None)


def test_a_run_that_goes_well_raises_nothing():
    run = lines("silent_groups", [0.3, 0.5] * 10)
    for step, line in enumerate(run[1:]):
        line |= {
            TURN: 0.5 - 0.01 * step,
            "tool_calls_path": 1.0,
            "tool_ok": 0.9,
            "clip_low": 0.01,
            "clip_high_turn/0": 0,
        }
    assert all(alarms(run[:end]) == [] for end in range(len(run) + 1))


def test_entropy_that_falls_below_a_share_of_its_early_level_has_collapsed():
    values = [1.0] * 5 + [0.5] * 5 + [0.19] * 5
    kinds = raised(TURN, values)
    assert kinds[:14] == [[]] * 14 and kinds[14] == ["entropy-collapse"]
    (found,) = alarms(lines(TURN, values))
    assert found.levels == (Level(TURN, pytest.approx(0.19), pytest.approx(module.COLLAPSED)),)


@pytest.mark.parametrize(
    "values",
    [
        [1.0] * 5 + [0.5] * 5 + [0.21] * 5,  # not that low
        [1.0] * 5 + [0.1] * 5 + [0.15] * 5,  # low, but rising again
        [0.09] * 5 + [0.02] * 5 + [0.0] * 5,  # there was nothing to lose
        [1.0] * 5 + [0.5] * 5 + [0.1, 0.1, math.nan, 0.1, 0.1],  # a turn that is not always there
        [1.0] * 5 + [0.1] * 4,  # too early to tell
    ],
)
def test_other_entropy_has_not(values):
    assert "entropy-collapse" not in raised(TURN, values)[-1]


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([0.4] * 5 + [0.6] * 5 + [0.81] * 5, ["entropy-explosion"]),
        ([0.4] * 5 + [0.6] * 5 + [0.79] * 5, []),  # not twice as high
        ([0.4] * 5 + [0.9] * 5 + [0.85] * 5, []),  # falling again
        ([0.001] * 5 + [0.01] * 5 + [0.19] * 5, []),  # many times nothing
        ([0.001] * 5 + [0.01] * 5 + [0.21] * 5, ["entropy-explosion"]),
    ],
)
def test_entropy_that_rises_above_a_multiple_of_it_explodes(values, kinds):
    assert raised(TURN, values)[-1] == kinds


@pytest.mark.parametrize("name", ["tool_calls_path", "tool_ok"])
def test_tools_that_are_no_longer_used_fall_silent(name):
    kinds = raised(name, [0.0] * 3 + [1.0] * 6 + [0.2, 0.05, 0.0, 0.0, 0.0, 0.0])
    assert first(kinds) == 14 and kinds[13] == ["silent-tools"]  # (0.2 + 0.05) / 5 < 0.1


@pytest.mark.parametrize(
    "values", [[0.0] * 20, [0.09] * 5 + [0.0] * 9, [1.0] * 5 + [0.11] * 9, [1.0] * 5 + [None] * 9]
)
def test_tools_that_were_never_used_or_still_are_do_not(values):
    assert raised("tool_calls_path", values)[-1] == []


@pytest.mark.parametrize(
    ("name", "limit", "kind"),
    [
        ("silent_groups", module.SILENT, "silent-groups"),
        ("clip_low", module.CLIPPED, "clipping"),
        ("clip_high", module.CLIPPED, "clipping"),
        ("clip_high_turn/3", module.CLIPPED, "clipping"),
        ("turns/cut", module.CUT, "cut-turns"),
    ],
)
def test_a_share_is_too_high_where_its_mean_over_a_window_is(name, limit, kind):
    assert raised(name, [limit + 0.02] * 4 + [limit - 0.07])[-1] == [kind]
    assert raised(name, [limit + 0.02] * 4 + [limit - 0.09])[-1] == []
    assert raised(name, [1.0] * 4) == [[]] * 4
    assert raised(name, [1.0] * 4 + [None]) == [[]] * 5


@pytest.mark.parametrize(
    "line", [{"step": 0}, {"step": 7, "refused": ""}, {"step": 7, "refused": "no"}]
)
def test_a_validation_whose_turns_are_cut_is_told_at_once(line):
    def kinds(cut):
        return [
            found.kind
            for found in alarms([{"step": 0, "valid/cut": 0.9}, {**line, "valid/cut": cut}])
        ]

    assert kinds(0.51) == ["cut-turns"] and kinds(0.5) == kinds(None) == kinds(math.nan) == []
    (found,) = alarms([{**line, "valid/cut": 0.75}])
    assert str(found).startswith(
        "cut-turns: valid/cut is 0.75 (limit 0.5); "
    ) and "--max-tokens" in str(found)


def test_several_turns_are_one_alarm_and_kinds_have_an_order():
    run = lines(TURN, [1.0] * 5 + [0.5] * 5 + [0.1] * 5)
    for line in run[1:]:
        line |= {"entropy_turn/0": 2 * line[TURN], "clip_low": 0.5, "silent_groups": 1.0}
    found = alarms(run)
    assert [one.kind for one in found] == ["entropy-collapse", "silent-groups", "clipping"]
    assert {level.metric for level in found[0].levels} == {TURN, "entropy_turn/0"}


def test_a_collapse_of_actions_is_told_however_open_the_tokens_are():
    run = lines(TURN, [1.0] * 15)
    for step, line in enumerate(run[1:]):
        line["action_entropy/1"] = [0.4, 0.2, 0.05][step // 5]
    (found,) = alarms(run)
    assert (found.kind, [level.metric for level in found.levels]) == (
        "entropy-collapse",
        ["action_entropy/1"],
    )


def test_tokens_that_become_certain_are_no_collapse_where_actions_still_differ():
    run = lines(TURN, [1.0] * 5 + [0.5] * 5 + [0.1] * 5)
    assert [found.kind for found in alarms(run)] == ["entropy-collapse"]
    for line in run[1:]:
        line["action_entropy/1"] = 0.4
    assert alarms(run) == []
    run[-1]["entropy_turn/2"] = run[-1].pop(
        "action_entropy/1"
    )  # in this step no two paths came so far
    assert alarms(run) == []


def test_refused_steps_count_for_nothing():
    run = lines("silent_groups", [1.0] * 5)
    refused = {"refused": "the loss is not finite", "silent_groups": 0.0}
    for place in (1, 3, len(run)):
        assert alarms([*run[:place], refused, *run[place:]]) == alarms(run) != []


def test_null_and_nan_are_the_same():
    values = [1.0] * 5 + [0.5] * 5 + [0.1] * 5
    for hole in range(15):
        told = [[*values[:hole], none, *values[hole + 1 :]] for none in (None, math.nan)]
        assert raised(TURN, told[0]) == raised(TURN, told[1])


def test_an_alarm_says_what_was_measured_and_what_to_do():
    found = Alarm(
        "entropy-collapse", (Level(TURN, 0.0213, 0.12), Level("entropy_turn/2", 0.5, 0.6))
    )
    assert str(found).startswith(
        "entropy-collapse: entropy_turn/1 is 0.0213 (limit 0.12), entropy_turn/2 is 0.5 (limit 0.6); hold the entropy"
    )
    assert str(found).endswith(ADVICE["entropy-collapse"])


@pytest.mark.parametrize("advice", ADVICE.values(), ids=ADVICE)
def test_advice_names_options_that_exist(advice):
    options = re.findall(r"--([a-z-]+)(?: (\S+))?", advice)
    assert options
    for option, value in options:
        assert option.replace("-", "_") in flat(TrainConfig())
        if option == "method":
            parse_methods(value.strip(",").replace("…", "grpo"))


# The entropy of turn 0 as SmolLM2-135M's was on sums: at the learning rate of the recipe, and planted at a higher one.
SUMS = [
    1.24,
    1.02,
    0.85,
    0.71,
    0.77,
    0.55,
    0.5,
    0.61,
    0.61,
    0.57,
    0.46,
    0.45,
    0.45,
    0.34,
    0.35,
    0.39,
    0.33,
    0.3,
    0.41,
]
PLANTED = [0.82, 0.7, 0.55, 0.4, 0.3, 0.2, 0.12, 0.07, 0.04, 0.04, 0.03]


def test_entropy_that_is_gone_in_the_first_steps_is_told_then():
    assert first(raised(TURN, PLANTED)) == 8 and raised(TURN, PLANTED)[7] == ["early-collapse"]
    assert raised(TURN, SUMS) == [[]] * len(SUMS)
    assert raised(TURN, [0.29] * 3 + [0.06] * 6) == [[]] * 9  # nothing to fall from
    late = [1.0] * 12 + [0.05] * 3
    assert "early-collapse" not in raised(TURN, late)[-1]


@pytest.mark.parametrize(
    ("name", "limit"), [("entropy", module.SPREAD), ("repetition", module.CIRCLING)]
)
def test_text_without_sense_is_gibberish(name, limit):
    assert raised(name, [limit - 0.4] * 5 + [limit + 0.4] * 5)[-3:] == [["gibberish"]] * 3
    assert raised(name, [limit - 0.01] * 9) == [[]] * 9
    assert raised(name, [limit + 0.4] * 4 + [None]) == [[]] * 5


def lengths(length, success):
    run = [
        {"refused": "", "turns/length": a, "success": b}
        for a, b in zip(length, success, strict=True)
    ]
    return [found.kind for found in alarms(run)]


def test_turns_that_grow_without_more_success_explode():
    grows = [30] * 5 + [50] * 5 + [80] * 5
    assert lengths(grows, [0.5] * 15) == ["length-explosion"]
    assert lengths(grows, [0.5] * 10 + [0.4] * 5) == ["length-explosion"]
    assert lengths(grows, [0.5] * 5 + [0.8] * 5 + [0.6] * 5) == [
        "length-explosion"
    ]  # what was gained is lost
    assert lengths(grows, [0.3] * 5 + [0.5] * 10) == []  # longer and better
    assert lengths([30] * 5 + [80] * 10, [0.5] * 15) == []  # no longer growing
    assert lengths([5] * 5 + [10] * 5 + [20] * 5, [0.5] * 15) == []  # not long
    assert lengths(grows[:10], [0.5] * 10) == []


# The metrics of runs of turngym, by the recipe and options that each was made with.
KEPT = json.loads((Path(__file__).parents[2] / "data/alarms.json").read_text())
SPREAD = "math-python --method grpo,entropy-bonus:coef=1 --lr 1e-2 --max-tokens 96"


def kept(name, changed=()):
    """The first step at which each kind of alarm is raised in a run that was kept, some of its metrics `changed`."""
    columns = {**KEPT[name], **dict(changed)}
    run = [
        {"refused": "", **dict(zip(columns, line, strict=True))}
        for line in zip(*columns.values(), strict=True)
    ]
    found = {}
    for end in range(1, len(run) + 1):
        found = {alarm.kind: end for alarm in alarms(run[:end])} | found
    return found


@pytest.mark.parametrize("name", ["math-python", "sums-smollm2", "sums-smollm2 --lr 5e-4"])
def test_runs_that_learned_raise_nothing(name):
    assert kept(name) == {}


@pytest.mark.parametrize(("name", "step"), [("math-python", 18), ("sums-smollm2", 28)])
def test_the_same_fall_of_entropy_is_a_collapse_where_nothing_was_learned(name, step):
    assert kept(name, [("success", [0.03] * len(KEPT[name]["success"]))]) == {
        "entropy-collapse": step
    }


def test_rewards_without_sense_silence_groups_and_collapse_nothing():
    assert kept("sums-smollm2 --shuffle-rewards") == {"cut-turns": 5, "silent-groups": 8}


def test_a_bonus_that_is_too_large_is_told_as_gibberish_and_as_turns_that_grow():
    found = kept(SPREAD)
    assert (found["gibberish"], found["length-explosion"], found["entropy-explosion"]) == (
        7,
        10,
        10,
    )


@pytest.mark.slow
def test_a_run_whose_entropy_is_driven_up_is_told(tmp_path):
    config = read_recipe("math-python").changed(
        method="grpo,entropy-bonus:coef=1",
        lr=1e-2,
        steps=12,
        eval_every=12,
        eval_tasks=8,
        max_tokens=48,
    )
    prepared = run.prepare(config.changed(out=str(tmp_path)))
    assert "gibberish" in [alarm.kind for record in run.execute(prepared) for alarm in record.begun]


def test_entropy_that_erupts_and_subsides_again_and_again_is_an_alarm():
    cycle = [0.1] * 4 + [0.5] * 4 + [0.1] * 4
    assert [module.eruptions(cycle * times) for times in (1, 2, 3)] == [1, 2, 3]
    assert module.eruptions([0.5] * 9 + [0.1] * 9) == module.eruptions([0.01, 0.05] * 9) == 0
    kinds = [
        alarm.kind for alarm in alarms([{"refused": "", "entropy": value} for value in cycle * 2])
    ]
    assert kinds == ["entropy-eruption"]
