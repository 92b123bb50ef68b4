"""Diagnosing: what is counted, gates, what is refused, and a whole diagnosis that is killed and goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from turngym import __main__ as cli
from turngym.agents.evaluation.statistics import fisher, mean_of, t_test
from turngym.agents.journal.trees import lock_folder
from turngym.agents.models.resolve import setting_of
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.agents.warmup import exact
from turngym.envs import StopReason
from turngym.envs.diagnostic import WORLDS
from turngym.envs.split_episodes import open_split
from turngym.training.comparison import diagnosis as report
from turngym.training.comparison.diagnosis import CASES, FILE, GATES, Diagnosis, check, plan
from turngym.training.comparison.measure import Measured
from turngym.training.comparison.outcomes import foresight
from turngym.training.runs.config import to_toml

LATE = CASES["late-bloomer"]


def tree(*paths):
    """Return a tree of paths: (words, states, what they led to, score)."""
    grown = Tree((0, 0, 0), 0, "t")
    grown.add(Turn.unsampled(-1, "user", "start", np.zeros(2, np.int32)))
    for branch, (words, states, led, score) in enumerate(paths):
        node = 0
        for turn, (word, state, to) in enumerate(zip(words, states, led, strict=True)):
            info = {"state": state, "led": to, "valid": to != "invalid"}
            drawn = np.array([1.0 + turn, 3.0 + turn], np.float32)
            node = grown.add(
                Turn(
                    node,
                    "assistant",
                    word,
                    np.zeros(2, np.int32),
                    np.ones(2, bool),
                    drawn,
                    drawn,
                    info=info,
                )
            )
        grown.leaves.append(Leaf.ended(node, branch, StopReason.ANSWERED, score, {}))
    return grown


def test_what_paths_did_is_counted():
    paths = [
        (
            ("ask", "alpha", "x"),
            ("start", "copy-1", "copy-2"),
            ("copy-1", "copy-2", "invalid"),
            0.0,
        ),
        (("guess", "red"), ("start", "colour"), ("colour", "won"), 1.0),
        (("ask", "bravo"), ("start", "copy-1"), ("copy-1", "lost"), 0.0),
        (("?",), ("start",), ("invalid",), 0.0),
    ]
    found = Measured.of([tree(*paths)], LATE.world)
    assert (found.episodes, found.tool, found.skill, found.success) == (4, 0.5, 1 / 3, 0.25)
    assert found.valid == 6 / 8 and found.pass_at_8 is None
    assert found.entropy == [2.0, 3.0, 4.0]
    assert Measured.of([tree(*paths * 2)], LATE.world).pass_at_8 == 1.0
    doors = tree((("north", "alpha"), ("start", "copy-1"), ("copy-1", "copy-2"), 0.0))
    assert Measured.of([doors], WORLDS["many-ways"]).tool is None
    assert Measured(**json.loads(json.dumps(asdict(found), allow_nan=False))) == found


def test_gates_name_what_lies_outside_of_them():
    expected = LATE.start.expected_metrics(LATE.world)
    fits = Measured(1024, **expected, entropy=[])
    check(LATE, fits, "it")
    for name, most in GATES.items():
        for sign in (-1, 1):
            value = expected[name] + sign * most
            check(LATE, replace(fits, **{name: value - sign * 1e-6}), "it")
            with pytest.raises(
                ValueError, match=rf"^it has {name} .*; the gate is .* ± {most} on 1024 episodes"
            ):
                check(LATE, replace(fits, **{name: value + sign * 1e-6}), "it")
    with pytest.raises(ValueError, match="it has skill None"):
        check(LATE, replace(fits, skill=None), "it")
    ways = CASES["many-ways"]
    check(
        ways,
        Measured(1024, None, **ways.start.expected_metrics(ways.world), entropy=[]),
        "a world without a tool",
    )


def test_a_world_is_solved_by_success_and_where_it_asks_for_it_by_coverage():
    sure = Measured(1024, None, 1.0, 1.0, 0.81, 0.5, [])
    assert LATE.final.solved(sure) and not LATE.final.solved(replace(sure, success=0.79))
    assert not CASES["many-ways"].final.solved(sure) and CASES["many-ways"].final.solved(
        replace(sure, pass_at_8=0.95)
    )
    assert not CASES["many-ways"].final.solved(replace(sure, pass_at_8=None))
    for case in CASES.values():  # the optimum solves it, the start does not
        best = case.world.best_success()
        assert case.final.solved(Measured(1024, 1.0, 1.0, 1.0, best, 1 - (1 - best) ** 8, []))
        assert not case.final.solved(
            Measured(1024, **{"tool": None, **case.start.expected_metrics(case.world)}, entropy=[])
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no method is named; name recipes of methods, such as: turngym diagnose grpo epo"),
        (
            ["grpo", "--world", "late-blomer"],
            "did you mean 'late-bloomer'? the worlds are late-bloomer, twin",
        ),
        (["grpo", "--seeds", "0"], "seeds is 0 and seed 0; there must be at least 1"),
        (["grpo", "--workers", "0"], "workers is 0; there must be at least 1"),
        (["grpo", "--steps", "0"], "steps is 0; it must be at least 1"),
        (["grpo,epo:alpa=2"], "grpo,epo:alpa=2: "),
        (
            ["grpo", "--resume"],
            "--resume needs the folder of what is to be resumed: turngym diagnose … --out FOLDER",
        ),
        (["grpo", "--out", "gone", "--resume"], "gone holds nothing to resume"),
    ],
)
def test_mistakes_are_found_before_anything_is_made(
    arguments, words, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        cli.main(["diagnose", *arguments])
    assert left.value.code == 2 and words in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def planned(folder, *methods, seeds=2, worlds=("late-bloomer",)):
    return plan(methods, worlds, seeds, 0, 2, str(folder), False)


def put(diagnosis, success):
    """Write results: `success` by method, one for each seed."""
    for job in diagnosis.trials:
        found = Measured(
            1024, 0.9, 0.8, 0.95, success[job.method][job.config.seed], 0.99, [0.1, 0.2]
        )
        data = {
            "sampled": asdict(found),
            "greedy": asdict(replace(found, success=1.0)),
            "seconds": 30.0,
        }
        job.folder.mkdir(parents=True)
        (job.folder / "metrics.jsonl").write_text('{"step": 0}\n')
        (job.folder / job.final.file).write_text(
            json.dumps({**data, "curve": [asdict(replace(found, tool=None))] * 7})
        )


def test_the_table_has_the_seeds_solved_and_their_p(tmp_path):
    diagnosis = planned(tmp_path / "d", "grpo", "epo", seeds=4)
    put(diagnosis, {"grpo": [0.3, 0.31, 0.32, 0.33], "epo": [0.9, 0.92, 0.94, 0.96]})
    table, differences = report.write_report(diagnosis, picture=True)
    rows = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
    assert (rows["grpo"]["solved"], rows["grpo"]["p"], rows["epo"]["solved"]) == ("0/4", "–", "4/4")
    assert rows["epo"]["p"] == f"{fisher(4, 4, 0, 4):.2g}" == "0.029"
    assert (
        rows["epo"]["success"] == "93.0 ± 4.1" and rows["epo"]["greedy"] == "100.0"
    )  # t(3) = 3.182
    assert differences.header == ("method", "success", "p", "greedy", "p", "pass@8", "p")
    ahead = [0.6, 0.61, 0.62, 0.63]  # pairwise: the spread of seeds is in both
    p = t_test(mean_of(ahead))
    assert differences.rows == [("epo", "+61.5 ± 2.1", f"{p:.2g}", "+0.0", "1", "+0.0", "1")]
    assert rows["epo"]["entropy"] == "0.10 0.20" and rows["epo"]["p(tool)"] == "90.0"
    found = json.loads((tmp_path / "d" / report.DATA).read_text())
    assert len(found["runs"]) == 8 and found["runs"][0]["curve"][0]["tool"] is None
    assert "## late-bloomer" in (tmp_path / "d" / report.TABLES).read_text()
    assert (tmp_path / "d" / report.PICTURE).stat().st_size > 10_000


def test_what_so_many_seeds_can_show_is_said():
    said = {seeds: foresight(seeds) for seeds in (3, 8)}
    assert (
        said[3].startswith("3 seeds: all solved against none is p = 0.1;")
        and "less than the wanted 80%" in said[3]
    )
    assert said[3].endswith("take --seeds 7") and "power 93%" in said[8] and "wanted" not in said[8]


def test_jobs_go_seed_by_seed_and_each_begins_with_the_policy_of_its_seed(tmp_path):
    diagnosis = planned(tmp_path / "d", "grpo", "epo", worlds=("late-bloomer", "twin"))
    found = [(job.config.seed, job.folder.parts[-3], job.method) for job in diagnosis.trials]
    assert found == [
        (s, w, m) for s in (0, 1) for w in ("late-bloomer", "twin") for m in ("grpo", "epo")
    ]
    for job in diagnosis.trials:
        config = job.config
        assert config.policy == str(
            tmp_path / "d" / job.folder.parts[-3] / "start" / f"seed-{config.seed}"
        )
        assert (config.env, config.schedule.steps, config.lr, config.lora.rank) == (
            LATE.env,
            2,
            3e-4,
            32,
        )
    assert isinstance(diagnosis, Diagnosis) and diagnosis.worlds[0][1].reference == "grpo"


def test_runs_follow_their_starts_where_a_diagnosis_was_moved_and_to_no_other_policy(tmp_path):
    job, *_ = planned(tmp_path / "d", "grpo", seeds=1).trials
    job.folder.mkdir(parents=True)
    (job.folder / "config.toml").write_text(to_toml(job.config, {}))
    moved = (tmp_path / "d").rename(tmp_path / "é")
    job, *_ = plan(("grpo",), ("late-bloomer",), 1, 0, 2, str(moved), True).trials
    assert setting_of(job.folder, "policy") == str(moved / "late-bloomer" / "start" / "seed-0")
    (job.folder / "config.toml").write_text(
        to_toml(job.config.changed(policy="late-bloomer/start/seed-1"), {})
    )
    with pytest.raises(
        ValueError,
        match=r"^policy is .*seed-0', but the run in .* was made with 'late-bloomer/start/seed-1'",
    ):
        plan(("grpo",), ("late-bloomer",), 1, 0, 2, str(moved), True)


def diagnose(*arguments):
    command = [sys.executable, "-m", "turngym", "diagnose", "grpo", *arguments]
    command += ["--seeds", "1", "--steps", "4", "--world", "many-ways", "--workers", "1"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def made_start(folder):
    """Put a policy that hardly learned where a seed begins, with the numbers that it should have."""
    case = CASES["many-ways"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "LEAST", 2)
        patch.setattr(exact, "NEAR", 99.0)
        list(exact.warm_up(open_split(case.env, {"split": "train"}), case.start, 0, folder))
    measured = {
        "episodes": 1024,
        "tool": None,
        **case.start.expected_metrics(case.world),
        "entropy": [1.0],
    }
    (folder / FILE).write_text(json.dumps({"start": asdict(case.start), "measured": measured}))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_diagnosis_that_is_killed_and_moved_goes_on_to_the_same_numbers(tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    for folder in (straight, killed):
        made_start(folder / "many-ways" / "start" / "seed-0")
    whole = diagnose("grpo:clip_high=0.5", "--out", str(straight), "--resume")
    out, _ = whole.communicate()
    assert whole.returncode == 0 and "many-ways, seed 0 begins with skill 43.2 %" in out, out
    assert (
        "grpo:clip_high=0.5 took the same 4 first steps as grpo in many-ways: it may not act there at all"
        in out
    )
    first = diagnose("--out", str(killed), "--resume")
    metrics = killed / "many-ways" / "grpo" / "seed-0" / "metrics.jsonl"
    while not (metrics.is_file() and metrics.read_text().count("\n") > 1):
        assert first.poll() is None
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    while not ended(metrics.parent):  # its workers end with it
        time.sleep(0.05)
    killed = killed.rename(tmp_path / "moved")
    again = diagnose("--out", str(killed), "--resume")
    out, _ = again.communicate()
    assert again.returncode == 0, out
    found = [
        json.loads((folder / "many-ways" / "grpo" / "seed-0" / "diagnosis.json").read_text())
        for folder in (straight, killed)
    ]
    assert {**found[0], "seconds": 0} == {**found[1], "seconds": 0} and len(found[0]["curve"]) == 4
    run = killed / "many-ways" / "grpo" / "seed-0"
    assert not (run / "trees").exists() and setting_of(run, "policy") == str(
        killed / "many-ways" / "start" / "seed-0"
    )


def ended(folder: Path) -> bool:
    """Whether nobody holds the lock of a run folder."""
    try:
        with lock_folder(folder):
            return True
    except BlockingIOError:
        return False
