"""A claim is confirmed where all seeds' intervals are past its bounds; its runs are made once, killed at any time."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from math import exp

import numpy as np
import pytest

from turngym.__main__ import main
from turngym.agents.journal.trees import read_trees
from turngym.training.comparison.claims import TABLES, Judged, Row, plan, statistic

for package in ("sacrebleu", "scipy", "sklearn"):
    pytest.importorskip(package, reason="the analysis extra is not installed")

TABLE = """
[start]
world = "many-ways"
seed = 3

[base]
env = "turngym/ManyWays-v0"
steps = 6
prompts = 2
group = 4
max_tokens = 8
eval_every = 6
eval_tasks = 2

[arms.grpo]
method = "grpo"

[arms.few]
method = "grpo"
option = ["size=10"]

[[claim]]
name = "decay"
says = "Entropy falls."
paper = "made up"
rows = [{ of = "change", arm = "grpo", sign = -1 }, { of = "mean", arm = "grpo", than = "few" }]

[[claim]]
name = "diversity"
says = "Diversity follows entropy."
paper = "made up"
rows = [{ of = "rank:diversity", arm = "grpo", bound = 0.8 }]
"""


def series(*entropy, **others):
    found = {"entropy": list(entropy), **others}
    return {
        name: {step: float(value) for step, value in enumerate(values, 1)}
        for name, values in found.items()
    }


def test_statistics_are_what_their_names_say():
    falling = series(1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.2, 0.1, 0.1, ece=range(10))

    def of(name, target=0.0):
        return statistic(Row(name, "arm", target=target), falling)

    assert of("mean") == pytest.approx(0.42)
    assert of("change") == pytest.approx(0.1 - 1.0)
    assert of("speed") == pytest.approx(np.mean([0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8, 0.9, 0.9]))
    assert of("error", target=0.2) == pytest.approx(abs(np.mean([0.2, 0.1, 0.1]) - 0.2) / 0.2)
    assert -1 <= of("rank:ece") < -0.9


@pytest.mark.parametrize("slope, wanted", [(-0.3, 1.0), (0.3, 0.0)])
def test_the_law_fits_means_of_windows_and_only_where_reward_rises_as_entropy_falls(slope, wanted):
    entropy = [value for value in (1.0, 0.8, 0.5, 0.2) for _ in range(5)] + [
        9.0
    ]  # a window that is not whole
    found = series(*entropy, reward=[slope * exp(value) + 1 for value in entropy])
    assert statistic(Row("r2", "arm"), found) == pytest.approx(wanted)


def test_a_row_holds_where_the_whole_interval_is_past_its_bound():
    row = Row("change", "grpo", sign=-1)
    assert Judged(row, {0: -1.0, 1: -1.2, 2: -1.1}).confirmed
    wide = Judged(row, {0: -1.0, 1: -0.1, 2: 0.2})
    assert wide.holds and not wide.confirmed
    assert not Judged(row, {0: -1.0}).confirmed and not Judged(row, {}).holds
    assert not Judged(replace(row, bound=-2.0), {0: -1.0, 1: -1.2, 2: -1.1}).holds


@pytest.mark.parametrize("table", TABLES)
def test_shipped_tables_can_be_planned(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if table != "tiny":
        pytest.skip("its policy has to be downloaded once")
    study = plan(table, 5, 100, "", False)
    named = {
        arm for claim in study.claims for row in claim.rows for arm in (row.arm, row.than) if arm
    }
    assert named == set(study.comparison.methods)
    assert len({claim.name for claim in study.claims}) == len(study.claims)


@pytest.mark.parametrize(
    "change, said",
    [
        (
            ('arm = "grpo", sign', 'arm = "gppo", sign'),
            "there is no arm 'gppo'; did you mean 'grpo'?",
        ),
        (("than =", "then ="), "a row has no 'then'"),
        (("[base]", "[bass]\nx = 1\n[base]"), "unknown key 'bass'"),
        (("steps = 6", "stepz = 6"), "unknown key 'stepz'; did you mean 'steps'?"),
    ],
)
def test_a_mistake_in_a_table_is_one_line(tmp_path, capsys, change, said):
    (tmp_path / "mine.toml").write_text(TABLE.replace(*change))
    with pytest.raises(SystemExit) as ended:
        main(["claims", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out"), "--quiet"])
    found = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2 and said in found and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_study_that_is_killed_goes_on_and_judges_what_its_runs_measured(tmp_path):
    (tmp_path / "mine.toml").write_text(TABLE.partition("\n\n")[2])  # begins with the tiny policy
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "turngym",
        "claims",
        "mine.toml",
        "--quick",
        "--seed",
        "3",
        "--out",
        str(out),
    ]
    first = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not any(out.glob("*/seed-3/trees/step-000002.jsonl")) and first.poll() is None:
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    done = subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    data = json.loads((out / "claims.json").read_text())
    lines = {
        (arm, seed): [
            json.loads(line)
            for line in (out / arm / f"seed-{seed}" / "metrics.jsonl").read_text().splitlines()
        ][1:]
        for arm in ("grpo", "few")
        for seed in (3, 4)
    }
    entropy = {key: [line["entropy"] for line in own] for key, own in lines.items()}
    change, mean = (row["values"] for row in data["claims"]["decay"]["rows"])
    for seed in (3, 4):
        grpo, few = entropy["grpo", seed], entropy["few", seed]
        assert change[str(seed)] == pytest.approx(grpo[-1] - grpo[0], abs=1e-6)
        assert mean[str(seed)] == pytest.approx(np.mean(grpo) - np.mean(few), abs=1e-6)
    assert (
        len(_tasks(out.glob("few/seed-*/trees/*")))
        <= 8
        < len(_tasks(out.glob("grpo/seed-*/trees/*")))
    )
    assert "| Entropy falls. |" in (out / "claims.md").read_text()


def _tasks(journals):
    return {tree.task for path in journals for tree in read_trees(path)}
