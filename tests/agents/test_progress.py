"""An evaluation that stops at any point goes on, and ends as one that did not stop."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import pytest

import turngym
from turngym.agents.cli.settings import SamplingOptions
from turngym.agents.evaluation import run as evaluate
from turngym.agents.evaluation.results import EPISODES, FILES, PlayedEpisodes
from turngym.agents.evaluation.scores import from_trees
from turngym.agents.journal.trees import append_sealed, lock_folder, read_sealed, read_trees
from turngym.envs import EnvFailure, Reply, StopReason, TextEnv

MATH = "turngym/Math-v0"


class Stopped(Exception):
    """Stands for the death of the process."""


def prepare(out, policy="expert", env=MATH, **changed):
    settings = {
        "episodes": 5,
        "samples": 2,
        "sampling": SamplingOptions(max_tokens=16),
        "out": out,
        **changed,
    }
    return evaluate.prepare(env, {"split": "test"}, policy, **settings)


def stop_after(count):
    """What ends an evaluation at the end of so many episodes."""
    left = iter(range(count))

    def on_episode(episode):
        if next(left, None) is None:
            raise Stopped

    return on_episode


def results(folder):
    return {name: (folder / name).read_bytes() for name in ("eval.json", "trees.jsonl")}


@pytest.mark.parametrize(("policy", "count"), [("expert", 0), ("tiny", 3)])
def test_what_was_stopped_ends_as_if_it_had_not_been_and_plays_no_episode_twice(
    tmp_path, policy, count
):
    evaluate.run(prepare(tmp_path / "whole", policy))
    with pytest.raises(Stopped):
        evaluate.run(prepare(tmp_path / "cut", policy), stop_after(count))
    assert not (tmp_path / "cut" / "trees.jsonl").exists()
    kept = lines(tmp_path / "cut" / EPISODES)
    assert count < kept <= 10  # the last one was over, too, and others may have ended meanwhile
    with (tmp_path / "cut" / EPISODES).open("ab") as file:
        file.write(b'{"key": [0')
    prepared = prepare(tmp_path / "cut", policy, resume=True)
    done = PlayedEpisodes(prepared.keys, tmp_path / "cut", lambda path: None)
    done.read(tmp_path / "cut")
    assert (len(done.over), len(done.missing)) == (kept, 10 - kept)
    report = evaluate.run(prepared)
    assert results(tmp_path / "cut") == results(tmp_path / "whole") and report.episodes == 10
    assert {path.name for path in (tmp_path / "cut").iterdir()} == {
        *("eval.json", "trees.jsonl", "settings.json"),
        *(["vocabulary.json"] if policy == "tiny" else []),
    }


class Counting(TextEnv):
    """Tasks 0 to 4, of which the first has no score while the file `down` is there."""

    tasks = range(5)
    played: list[str] = []  # noqa: RUF012 (of all copies)

    def __init__(self, split: str = "", down: str = "") -> None:
        super().__init__()
        self.down, self.task = down, 0

    def on_reset(self, rng, options):
        self.task, self.task_id = options["task"], str(options["task"])
        return f"Task {self.task}, {rng.integers(1000)}."

    def on_step(self, text):
        self.played.append(self.task_id)
        if self.task == 0 and Path(self.down).exists():
            raise EnvFailure("the grader is gone")
        return Reply("", 1.0, StopReason.ANSWERED)

    def gold(self):
        return ["yes"]


@pytest.fixture
def counting(monkeypatch):
    spec = gymnasium.envs.registration.EnvSpec("tests/Counting-v0", Counting)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    monkeypatch.setattr(Counting, "played", [])
    return spec.id


def test_an_episode_without_a_score_is_played_again_and_no_other(counting, tmp_path):
    (tmp_path / "down").touch()
    options = {"down": str(tmp_path / "down")}

    def run(resume):
        prepared = evaluate.prepare(
            counting, options, "expert", episodes=5, out=tmp_path / "out", resume=resume
        )
        return evaluate.run(prepared)

    assert (run(False).failed, sorted(Counting.played)) == (1, ["0", "1", "2", "3", "4"])
    Counting.played.clear()
    assert (run(True).failed, Counting.played) == (
        1,
        ["0"],
    )  # its failure is in the journal, and may be over
    (tmp_path / "down").unlink()
    assert (run(True).failed, Counting.played) == (0, ["0", "0"])
    assert (run(True).episodes, Counting.played) == (5, ["0", "0"])
    assert len(from_trees(read_trees(tmp_path / "out" / "trees.jsonl"))) == 5


def test_a_folder_that_holds_an_evaluation_is_only_finished(tmp_path):
    evaluate.run(prepare(tmp_path / "out"))
    before = results(tmp_path / "out")
    with pytest.raises(
        ValueError,
        match=r"out holds an evaluation \(settings.json\); add --resume to finish it, or",
    ):
        prepare(tmp_path / "out")
    for name in FILES:
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
        with pytest.raises(ValueError, match="holds an evaluation"):
            prepare(tmp_path / name)
    with pytest.raises(ValueError, match="--resume needs the folder of the evaluation"):
        prepare(None, resume=True)
    evaluate.run(prepare(tmp_path / "out", resume=True))
    assert results(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, "seed is 1, but the evaluation in .* was begun with 0; resume it with that"),
        ({"samples": 3}, "samples is 3, but"),
        ({"episodes": 6}, "episodes is 6, but"),
        ({"policy": "tiny"}, "policy is 'tiny', but the evaluation in .* was begun with 'expert'"),
        ({"env": "turngym/MathPython-v0"}, "env is 'turngym/MathPython-v0', but"),
    ],
)
def test_other_settings_are_named(tmp_path, changed, message):
    evaluate.run(prepare(tmp_path))
    with pytest.raises(ValueError, match=message):
        prepare(tmp_path, resume=True, **changed)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"sampling": SamplingOptions(max_tokens=17)}, "max_tokens"),
        ({"sampling": SamplingOptions(16, 0.5)}, "temperature"),
    ],
)
def test_sampling_is_a_setting_of_a_policy(tmp_path, changed, name):
    with pytest.raises(Stopped):
        evaluate.run(prepare(tmp_path, "tiny"), stop_after(0))
    with pytest.raises(ValueError, match=f"{name} is .*, but the evaluation"):
        prepare(tmp_path, "tiny", resume=True, **changed)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_settings_that_cannot_be_read_are_named(tmp_path, content):
    evaluate.run(prepare(tmp_path))
    (tmp_path / "settings.json").unlink()
    if content is not None:
        (tmp_path / "settings.json").write_text(content)
    with pytest.raises(
        ValueError,
        match=r"cannot be resumed: settings.json cannot be read|env is .*begun with None",
    ):
        prepare(tmp_path, resume=True)


def test_a_damaged_line_is_named_and_a_second_process_is_refused(tmp_path):
    with pytest.raises(Stopped):
        evaluate.run(prepare(tmp_path), stop_after(2))
    prepared = prepare(tmp_path, resume=True)
    with lock_folder(tmp_path), pytest.raises(BlockingIOError, match="another process is writing"):
        evaluate.run(prepared)
    lines = (tmp_path / EPISODES).read_bytes().splitlines(keepends=True)
    (tmp_path / EPISODES).write_bytes(lines[0] + lines[1].replace(b"task", b"tusk") + lines[2])
    with pytest.raises(
        ValueError, match=rf"{EPISODES}, line 2: its checksum does not fit.*; remove the line"
    ):
        evaluate.run(prepared)


def test_lines_survive_a_cut(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert list(read_sealed(path)) == []
    rows = [{"a": "\ud800 é"}, {"b": [1.5, None]}]
    for row in rows:
        append_sealed(path, row, synced=False)
    whole = path.read_bytes()
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end])
        assert list(read_sealed(path)) == rows[: whole[:end].count(b"\n")]
    path.write_bytes(whole[:-1])
    append_sealed(path, rows[1])
    assert path.read_bytes() == whole


# --- killed


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "kills"), [("expert", (1, 30)), ("tiny", (8,))])
def test_a_killed_evaluation_goes_on(tmp_path, policy, kills):
    command = [sys.executable, "-m", "turngym", "eval", "turngym/MathPython-v0", "--policy", policy]
    command += ["--episodes", "24", "--samples", "2", "--max-tokens", "24"]
    environment = {**os.environ, "PYTHONPATH": str(Path(turngym.__file__).parent.parent)}

    def run(out, *more):
        return subprocess.Popen(
            [*command, "--out", str(out), *more], env=environment, stdout=subprocess.DEVNULL
        )

    killed = 0
    for least in kills:
        with run(tmp_path / "cut", *(["--resume"] if killed else [])) as process:
            while process.poll() is None and lines(tmp_path / "cut" / EPISODES) < least:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
    assert killed
    for out in (tmp_path / "cut", tmp_path / "whole"):
        with run(out, "--resume") as process:
            pass
        assert process.returncode == 0
    assert results(tmp_path / "cut") == results(tmp_path / "whole")


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0
