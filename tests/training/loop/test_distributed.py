"""Two processes train as one does: a real pair of them, whose runs are compared with that of this process.

This file is also what the two processes execute.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import TCPStore

from turngym.__main__ import main
from turngym.agents.cli.settings import flat
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.journal.checkpoint import steps
from turngym.agents.journal.trees import Incident, Origin, read_trees, to_json
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.data.packing import pack
from turngym.training.loop import learner
from turngym.training.loop.distributed import SOLO, Team, joined, shares
from turngym.training.runs.config import TrainConfig, read_recipe
from turngym.training.runs.folder import Logbook
from turngym.training.runs.launch import Launch, launched
from turngym.training.runs.run import execute, prepare

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

RECIPE = read_recipe("math-python")
PAIR = RECIPE.changed(
    difficulty=(1,),
    method="grpo,epo,actfocus:energy=free",
    steps=2,
    prompts=3,
    group=3,
    updates=2,
    max_tokens=24,
    micro_tokens=200,
    eval_every=1,
    eval_tasks=3,
)
BRIEF = PAIR.changed(steps=3, updates=1, eval_every=9, eval_tasks=1)
CLOSE = 1e-6  # sums of gradients are rounded in another order


@dataclass
class Pair:
    """What two processes wrote, and what each said of what befell it."""

    folder: Path
    said: tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("pair")
    store = TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False
    )  # as torchrun's agent holds it
    meeting = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            env={**os.environ, **meeting, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        shown = [process.communicate()[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(shown)
    one, other = (
        json.loads((folder / f"{rank}.json").read_text()) | {"shown": shown[rank]}
        for rank in range(2)
    )
    return Pair(folder, (one, other))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    list(execute(prepare(PAIR.changed(out=str(folder)))))
    return folder


# --- what the two processes do


def work(folder: Path) -> None:
    """Train, die and go on, meet a number that is not finite, disagree, and lose the other process."""
    launch, said = launched(), {}
    TorchEngine.mode_reason = ""  # type: ignore[assignment]
    before = flat(RECIPE)
    options = {name: value for name, value in flat(PAIR).items() if value != before[name]}
    args = [
        text
        for name, value in options.items()
        for text in (f"--{name.replace('_', '-')}", _shown(value))
    ]
    said["status"] = _raised(lambda: main(["train", *args, "--out", str(folder / "run")]))
    again = PAIR.changed(out=str(folder / "again"))
    _until(again, 1)
    list(execute(prepare(again.changed(resume=True))))
    with joined(launch, "cpu", 60, 2) as team:
        said["disagreed"] = _raised(
            lambda: team.agree("the sky", lambda: f"up\nit is {'blue' if team.first else 'red'}")
        )
        said["decided"] = team.decide(lambda: team.first)
    objective = learner.objective
    if not launch.first:
        learner.objective = lambda *parts: objective(*parts) * float("nan")
    said["lost"] = _raised(
        lambda: _until(BRIEF.changed(out=str(folder / "lost")), 3 if launch.first else 1)
    )
    (folder / f"{launch.rank}.json").write_text(json.dumps(said))


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _until(config: TrainConfig, step: int) -> None:
    """Train until the record of a step has come, and leave the run there as a killed process would."""
    run = execute(prepare(config))
    while next(run).step < step:
        pass
    run.close()


def _raised(act: Callable[[], object]) -> str:
    try:
        act()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return ""


# --- what became of it


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [
        {name: value for name, value in line.items() if not name.startswith("seconds")}
        for line in lines
    ]


def weights(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    found = sorted((folder / "checkpoints").rglob("*.safetensors"))
    return {str(path.relative_to(folder)): load_file(path) for path in found}


def test_the_first_rollout_of_two_processes_is_that_of_one_to_the_byte(pair, alone):
    journal = "trees/step-000001.jsonl"
    assert (pair.folder / "run" / journal).read_bytes() == (alone / journal).read_bytes()


def test_later_rollouts_are_the_same_but_for_rounding_of_the_weights(pair, alone):
    trees = [
        list(read_trees(folder / "trees/step-000002.jsonl"))
        for folder in (pair.folder / "run", alone)
    ]
    for ours, theirs in zip(*trees, strict=True):
        assert ours.key == theirs.key and len(ours.turns) == len(theirs.turns)
        assert [replace(leaf, info={}) for leaf in ours.leaves] == [
            replace(leaf, info={}) for leaf in theirs.leaves
        ]
        for turn, other in zip(ours.turns, theirs.turns, strict=True):
            assert turn.tokens.tolist() == other.tokens.tolist() and turn.text == other.text
            np.testing.assert_allclose(turn.logp_roll, other.logp_roll, atol=1e-4)


def test_two_processes_measure_what_one_does(pair, alone):
    for line, other in zip(metrics(pair.folder / "run"), metrics(alone), strict=True):
        assert line.keys() == other.keys()
        for name, value in line.items():
            within = (
                CLOSE if name in ("loss", "grad_norm", "reward", "success", "entropy") else 1e-4
            )
            assert value == (
                pytest.approx(other[name], rel=CLOSE, abs=within)
                if isinstance(value, float)
                else other[name]
            ), name


def test_two_processes_learn_the_weights_that_one_learns(pair, alone):
    ours, theirs = weights(pair.folder / "run"), weights(alone)
    assert ours.keys() == theirs.keys() and len(ours) == 4
    for name, tensors in ours.items():
        for part, tensor in tensors.items():
            torch.testing.assert_close(tensor, theirs[name][part], rtol=0, atol=CLOSE)


def test_only_the_first_process_writes_and_speaks(pair):
    first, second = (said["shown"] for said in pair.said)
    assert "held-out success" in first and "run folder: " in first and second == ""
    assert [said["status"] for said in pair.said] == ["SystemExit: 0"] * 2
    assert {path.name for path in pair.folder.iterdir()} == {
        "run",
        "again",
        "lost",
        "0.json",
        "1.json",
    }
    assert "processes = 2\n" in (pair.folder / "run" / "config.toml").read_text()
    assert json.loads((pair.folder / "run" / "summary.json").read_text())["steps"] == 2


def test_a_run_of_two_that_was_killed_and_resumed_is_the_undisturbed_one_to_the_byte(pair):
    run, again = pair.folder / "run", pair.folder / "again"
    assert metrics(run) == metrics(again)
    for part in ("trees", "checkpoints"):
        files = [
            {path.relative_to(one): path.read_bytes() for path in (one / part).rglob("*.*")}
            for one in (run, again)
        ]
        assert files[0] == files[1] and len(files[0]) >= 2


def test_a_number_that_is_not_finite_on_one_process_is_refused_on_all_with_the_sample_named(pair):
    line = metrics(pair.folder / "lost")[1]
    assert line["refused"].startswith("the loss is not finite in ") and line["updates"] == 0
    incidents = [
        json.loads(text)
        for text in (pair.folder / "lost" / "incidents.jsonl").read_text().splitlines()
    ]
    (refused,) = (row for row in incidents if row["kind"] == "refused")
    tasks = [tree.task for tree in read_trees(pair.folder / "lost" / "trees" / "step-000001.jsonl")]
    assert (
        refused["key"][:2] == [0, 0] and refused["key"][2] in tasks[1:]
    )  # of the paths of the second process


def test_a_process_that_ends_makes_the_other_end_by_name_with_a_checkpoint_of_where_it_stood(pair):
    one, other = (said["lost"] for said in pair.said)
    assert (
        one.startswith("PeerLost: process 0 of 2 has lost another")
        and "--resume" in one
        and other == ""
    )
    assert steps(pair.folder / "lost" / "checkpoints")[-1].name == "step-000001"


def test_processes_that_differ_say_in_what(pair):
    for said in pair.said:
        assert (
            said["disagreed"]
            == "Disagreement: the sky: process 0 has it is blue, process 1 has it is red"
        )
        assert said["decided"] is True


# --- parts that need no second process


def test_a_process_that_is_alone_talks_to_nobody():
    with joined(Launch(), "cpu", 1, 1) as team:
        assert team is SOLO and team.first and team.size == 1
    assert team.total(lambda: 2.5) == 2.5 and team.decide(lambda: False) is False
    team.agree("anything", lambda: pytest.fail("nobody asks"))


def test_paths_are_shared_out_by_tokens_and_every_path_once():
    trees = [tree(task, lengths) for task, lengths in enumerate([(30, 2), (5, 5), (1, 40, 3)])]
    packed = pack(trees)
    every = torch.ones(packed.batch.n_paths, dtype=torch.bool)
    for size in range(1, 10):
        ranges = shares(packed, every, size)
        assert [path for paths in ranges for path in paths] == list(range(7)) and len(
            ranges
        ) == size
    assert shares(packed, every, 2) == [range(4), range(4, 7)]  # 50 and 48 tokens
    some = every.clone()
    some[5] = False  # the path of 40 tokens has nothing to learn
    assert shares(packed, some, 2) == [range(1), range(1, 7)]
    assert [len(paths) for paths in shares(packed, ~every, 3)] == [0, 0, 7]


def tree(task: int, lengths: tuple[int, ...]) -> Tree:
    """A tree of a prompt of 4 tokens and a path for each length."""
    grown = Tree((0, 0, task), task, f"task-{task}")
    grown.add(Turn.unsampled(-1, "user", "?", np.zeros(4, np.int32)))
    for branch, length in enumerate(lengths):
        turn = Turn.unsampled(0, "assistant", "!", np.ones(length, np.int32))
        turn = replace(turn, sampled=np.ones(length, np.bool_))
        grown.leaves.append(Leaf(grown.add(turn), branch, Outcome.DONE, "answered", 1.0))
    return grown


class Echo(Team):
    """A team whose processes all say the same."""

    def _gather(self, data: bytes) -> list[bytes]:
        return [data] * self.size


def test_trees_and_incidents_travel_whole_and_come_in_the_order_of_tasks():
    grown = [replace(tree(task, (2,)), task_id=f"\u2028 \ud800\n{task}") for task in (3, 9)]
    heard: list[Incident] = []

    def collect(tasks: list[int], on_incident: Callable[[Incident], None]) -> list[Tree]:
        assert tasks == [3]
        on_incident(Incident("retry", "again\nand again", (0, 1, 3)))
        return grown

    got = Echo(Launch(1, 2), 2, 1.0).grow(collect, [9, 3], heard.append)
    assert [to_json(one) for one in got] == [to_json(one) for one in reversed(grown)]
    assert heard == [Incident("retry", "again\nand again", (0, 1, 3))] * 2  # once from each process


def test_a_process_that_grows_none_has_the_trees_of_the_others():
    def collect(tasks: list[int], on_incident: Callable[[Incident], None]) -> list[Tree]:
        raise AssertionError("its engine is not asked")

    assert Echo(Launch(1, 2), 1, 1.0).grow(collect, [], print) == []


def test_a_tree_that_no_journal_could_hold_is_refused_by_its_key():
    broken = tree(3, (2,))
    broken.turns[1] = replace(broken.turns[1], entropy=np.full(2, np.nan, np.float32))
    with pytest.raises(ValueError, match=r"tree \(0, 0, 3\) cannot be sent to the other processes"):
        Echo(Launch(0, 2), 2, 1.0).grow(lambda tasks, on_incident: [broken], [3], print)


def test_a_process_that_does_not_write_leaves_the_writing_to_another(tmp_path):
    book = Logbook(tmp_path, writes=False)
    book.add_metrics("{}")
    book.add_incident(1, Incident("retry", "again"))
    book.add_trees(1, [], Origin("turngym/Math-v0", {}))
    assert not list(tmp_path.iterdir())


if __name__ == "__main__":
    work(Path(sys.argv[1]))
