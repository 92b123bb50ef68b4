import json
import math

from turngym.agents.scores import Interval, Report
from turngym.training.control import Stats
from turngym.training.learner import Update
from turngym.training.record import Learned, Record

REPORT = Report(4, 4, 1, 0, 0.5, Interval(0.5, 0.2, 0.8), {}, 0.25, 1.5, {"answered": 4})


def test_a_line_holds_the_step_its_metrics_and_the_validation():
    line = json.loads(Record(3, {"reward": 0.5, "loss": math.nan, "refused": ""}, REPORT).line())
    assert line == {
        "step": 3,
        "reward": 0.5,
        "loss": None,
        "refused": "",
        "valid/success": 0.5,
        "valid/low": 0.2,
        "valid/high": 0.8,
        "valid/tool_share": 0.25,
        "valid/turns": 1.5,
    }
    assert json.loads(Record(0, {}).line()) == {"step": 0}


def test_what_was_learned_is_told_without_the_time_it_took():
    update = Update(idle=0.0, lr=1e-3, loss=0.25, grad_norm=2.0, drift=0.0, means={"kl_old": 0.5})
    line = json.loads(Learned(update, Stats(0, "rollout", entropy_turns=(0.5, 0.25)), "{}").line([]))
    told = {"loss": 0.25, "grad_norm": 2.0, "kl_old": 0.5, "refused": "", "entropy_turn/1": 0.25, "reward": None}
    assert line.items() >= told.items() and not any("seconds" in name for name in line)


def test_a_refused_update_has_a_reason_in_place_of_numbers():
    line = json.loads(Learned(Update(refused="no"), Stats(0, "rollout"), "{}").line([]))
    assert (line["refused"], line["loss"], line["grad_norm"], line["idle_paths"]) == ("no", None, None, None)
