"""The training loop, through whole small runs of tiny: what is written is what happened, and it can be gone on with."""

import json
import math
import os
import signal
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from turngym.agents.cli.terminal import endings
from turngym.agents.journal import checkpoint
from turngym.agents.journal.checkpoint import read_state, steps
from turngym.agents.journal.trees import Incident, read_trees
from turngym.agents.policy import Policy
from turngym.agents.trajectory import Tree
from turngym.envs import Outcome
from turngym.envs.math import MathTasks
from turngym.envs.question.env import QuestionEnv
from turngym.training.control.control import Control, Needs, Request, Verdict
from turngym.training.loop import learner, rollouts
from turngym.training.loop import trainer as loop
from turngym.training.loss.objective import BadUpdate
from turngym.training.methods import METHODS
from turngym.training.metrics import alarms
from turngym.training.runs import folder as run_folder
from turngym.training.runs.config import TrainConfig
from turngym.training.runs.folder import read_boundary
from turngym.training.runs.run import execute, prepare

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = TrainConfig().changed(
    method="grpo,epo",
    difficulty=(1,),
    steps=4,
    prompts=2,
    group=3,
    max_tokens=24,
    lr=5e-3,
    eval_every=2,
    eval_tasks=3,
    threads=1,
)
PROMISED = {
    "step",
    "reward",
    "success",
    "entropy",
    "entropy_turn/0",
    "tokens",
    "seconds",
    "loss",
    "grad_norm",
    "drift",
}


def questions(folder: Path) -> Path:
    """A file of 40 questions, some of which are held out."""
    path, rows = folder / "questions.jsonl", []
    for tasks in (MathTasks("train", 1), MathTasks("valid", 1)):
        rows += [{"problem": tasks[i].prompt, "answer": tasks[i].gold} for i in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def train(config: TrainConfig, until: int | None = None) -> list[loop.Record]:
    """Run until the record of a step has come, and leave the run there as a killed process would."""
    run, records = execute(prepare(config)), []
    for record in run:
        records.append(record)
        if record.step == until:
            break
    run.close()
    return records


def metrics(folder: Path) -> list[dict[str, Any]]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return [
        json.loads(line, parse_constant=refuse)
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]


def journal(folder: Path) -> list[list[Tree]]:
    return [list(read_trees(path)) for path in sorted((folder / "trees").glob("*.jsonl"))]


def written(folder: Path) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """All that a run wrote, but for wall-clock times and the name of its own folder."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for part in ("trees", "checkpoints")
        for path in sorted((folder / part).rglob("*"))
        if path.is_file()
    }
    timeless = [
        {k: v for k, v in line.items() if not k.startswith("seconds")} for line in metrics(folder)
    ]
    return files, timeless


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(TINY.changed(out=str(folder)))
    return folder


@pytest.mark.parametrize("killed_at", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_run_that_was_killed_and_resumed_is_the_undisturbed_run_to_the_byte(
    undisturbed, tmp_path, killed_at
):
    """Adapter, optimizer, control state, journals and metrics; steps after the last checkpoint are taken again."""
    config = TINY.changed(out=str(tmp_path / "run"))
    train(config, until=killed_at)
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')  # and died there
    records = train(config.changed(resume=True))
    first = killed_at - killed_at % 2 + 1
    assert [record.step for record in records] == list(range(first, 5))
    files, lines = written(undisturbed)
    again, others = written(tmp_path / "run")
    assert again == files and others == lines
    assert {
        "checkpoints/step-000004/adapter/adapter_model.safetensors",
        "trees/step-000003.jsonl",
    } <= set(files)


@pytest.mark.slow
def test_a_reference_that_was_reset_is_the_policy_of_then_also_in_a_run_that_was_killed(tmp_path):
    """Before the reset the adapter moves away from the reference, after it it begins at 0 again."""
    config = TINY.changed(method="grpo:kl_coef=0.1,prorl:every=2", group=4)
    train(config.changed(out=str(tmp_path / "whole")))
    train(config.changed(out=str(tmp_path / "killed")), until=3)
    train(config.changed(out=str(tmp_path / "killed"), resume=True))
    files, lines = written(tmp_path / "whole")
    again, others = written(tmp_path / "killed")
    assert again == files and others == lines
    kls = [line["kl"] for line in lines[1:]]
    assert kls[1] > 1e-6 and kls[0] < 1e-9 and kls[2] < 1e-9 and kls[3] > 1e-6
    kept = "adapter/adapter_model.safetensors"
    then, last = (tmp_path / "whole" / "checkpoints" / f"step-00000{step}" for step in (2, 4))
    assert (then / "reference" / kept[8:]).read_bytes() == (then / kept).read_bytes()
    assert (last / "reference" / kept[8:]).read_bytes() == (last / kept).read_bytes()


@pytest.mark.slow
def test_minibatches_order_and_validation_survive_a_kill_to_the_byte(tmp_path, monkeypatch):
    """Each step takes its optimizer steps on parts of the trees; controls see validations and choose tasks."""
    seen, begun = list[float](), list[str]()

    def observe(stats, state):
        seen.append(stats.valid)
        return {"valid": stats.valid if math.isfinite(stats.valid) else -1.0}, frozenset()

    def order(tasks, state):
        begun.append(tasks.text(tasks.order[0]))
        return sorted(tasks.order)[:5]

    def choose() -> Control:
        return Control(name="choose", order=order, observe=observe)

    monkeypatch.setitem(METHODS, "choose", choose)
    config = TINY.changed(method="grpo,erc,choose", minibatches=2, updates=2)
    train(config.changed(out=str(tmp_path / "whole")))
    assert all(math.isfinite(valid) for valid in seen) and begun and all(begun)
    train(config.changed(out=str(tmp_path / "killed")), until=3)
    train(config.changed(out=str(tmp_path / "killed"), resume=True))
    assert written(tmp_path / "killed") == written(tmp_path / "whole")
    lines = metrics(tmp_path / "whole")
    assert {tree.task for step in journal(tmp_path / "whole") for tree in step} == set(range(5))
    assert all(line["updates"] == 4 for line in lines[1:])


def test_a_run_writes_a_line_a_step_with_the_promised_names(undisturbed):
    lines = metrics(undisturbed)
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert all(set(line) >= PROMISED for line in lines[1:])
    for line in lines[1:]:
        assert (
            line["paths"] == 6
            and line["refused"] == ""
            and line["drift"] < 3e-5
            and line["seconds"] > 0
        )
    names = ("success", "low", "high", "tool_share", "turns", "cut", "episodes")
    valid = {f"valid/{name}" for name in names}
    assert [line["step"] for line in lines if valid <= set(line)] == [0, 2, 4]
    assert set(lines[0]) == {"step"} | valid


def test_metrics_are_those_of_the_journal(undisturbed):
    for line, trees in zip(metrics(undisturbed)[1:], journal(undisturbed), strict=True):
        leaves = [leaf for tree in trees for leaf in tree.leaves]
        drawn = [turn for tree in trees for turn in tree.turns if turn.role == "assistant"]
        first = [tree.turns[tree.replies(leaf)[0]] for tree in trees for leaf in tree.leaves]
        assert line["reward"] == pytest.approx(sum(leaf.score for leaf in leaves) / 6)
        assert line["tokens"] == sum(len(turn.tokens) for turn in drawn)
        total = sum(float(turn.entropy.sum()) for turn in drawn)
        assert line["entropy"] == pytest.approx(total / line["tokens"], rel=1e-5)
        of_first = sum(float(turn.entropy.sum()) for turn in first) / sum(
            len(turn.tokens) for turn in first
        )
        assert line["entropy_turn/0"] == pytest.approx(of_first, rel=1e-5)


def test_every_step_rolls_out_the_policy_of_the_step_before(undisturbed):
    for step, trees in enumerate(journal(undisturbed)):
        assert {tree.key for tree in trees} == {(0, step, tree.task) for tree in trees}
        assert {
            turn.version for tree in trees for turn in tree.turns if turn.role == "assistant"
        } == {step}


def test_the_newest_two_checkpoints_stay_and_hold_the_control_state(undisturbed):
    folder = undisturbed / "checkpoints"
    assert [path.name for path in steps(folder)] == ["step-000002", "step-000004"]
    state = read_state(folder / "step-000004")
    (_, epo) = state["control"]
    nested = epo.pop("sum")
    assert (state["step"], state["version"], state["cursor"], epo) == (
        4,
        4,
        8,
        {"count": 4, "step": 4},
    )
    assert 0 < nested / 4 < math.log(640)


# --- tasks


def spy(patch: pytest.MonkeyPatch, module: Any, name: str) -> list[tuple[Any, ...]]:
    """Keep the arguments of every call of a function in `module`."""
    calls, function = [], getattr(module, name)

    def watched(*arguments: Any, **options: Any) -> Any:
        calls.append((*arguments, options))
        return function(*arguments, **options)

    patch.setattr(module, name, watched)
    return calls


def check_splits(calls: list[tuple[Any, ...]]) -> None:
    """Rollouts are of train tasks; validations of the same valid tasks with the same key, which share no problem."""
    trained, validated = set(), []
    for _, env, tasks, options in calls:
        if options["key"][1] == rollouts.VALIDATION:
            assert env.tasks.split == "valid"
            validated.append((options["key"], [env.tasks[task].prompt for task in tasks]))
        else:
            assert env.tasks.split == "train"
            trained |= {env.tasks[task].prompt for task in tasks}
    assert len(validated) > 1 and all(one == validated[0] for one in validated)
    assert trained and trained.isdisjoint(validated[0][1])


@pytest.mark.slow
def test_steps_take_different_tasks_and_an_epoch_takes_each_once(monkeypatch, tmp_path):
    config = TINY.changed(
        tasks=str(questions(tmp_path)),
        method="reinforce",
        prompts=5,
        group=1,
        max_tokens=1,
        eval_every=99,
    )
    calls, orders = spy(monkeypatch, rollouts, "collect"), []
    for seed, count in ((0, 10), (1, 1)):
        prepared = prepare(config.changed(steps=count, seed=seed, out=str(tmp_path / str(seed))))
        total = len(prepared.env.tasks)
        assert 25 < total < 40
        list(execute(prepared))
        taken = [[tree.task for tree in trees] for trees in journal(prepared.folder)]
        assert all(len(set(step)) == 5 for step in taken)
        orders.append([task for step in taken for task in step])
        if not seed:
            check_splits(calls)
    one, other = orders
    assert sorted(one[:total]) == list(range(total))
    rest = one[total:]
    assert rest and len(set(rest)) == len(rest) and rest != one[: len(rest)]
    assert one[:5] != other


@pytest.mark.slow
def test_shuffled_rewards_are_what_is_learned_from_and_the_journal_keeps_the_true_ones(
    monkeypatch, tmp_path
):
    learned = spy(monkeypatch, loop, "pack")
    config = TINY.changed(
        prompts=4, steps=1, eval_every=9, shuffle_rewards=True, out=str(tmp_path / "run")
    )
    train(config)
    (((trees, *_),), (true,)) = learned, journal(tmp_path / "run")
    scores, dealt = (
        [leaf.score for tree in forest for leaf in tree.leaves] for forest in (true, trees)
    )
    assert sorted(scores) == sorted(dealt) and 0 < sum(scores) < len(scores)
    assert scores != dealt
    tokens, same = (
        [tree.tokens(leaf).tolist() for tree in t for leaf in tree.leaves] for t in (true, trees)
    )
    assert tokens == same


# --- what controls may ask for


@dataclass
class Watched:
    """A run of three steps that a control stops after the second, and what loop and control saw."""

    folder: Path
    records: list[loop.Record] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)
    collected: list[tuple[Any, ...]] = field(default_factory=list)
    packed: list[tuple[Any, ...]] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)

    def observe(self, stats: Any, state: Any) -> Any:
        self.seen.append(stats)
        stop = stats.step == 1 and stats.phase == "update"
        return state, frozenset([Request.STOP] if stop else [])


def run_with(control: Control, folder: Path, patch: pytest.MonkeyPatch) -> list[loop.Record]:
    patch.setitem(METHODS, "probe", lambda: control)
    method = "grpo,entropy-bonus,probe"
    return train(TINY.changed(method=method, steps=3, eval_every=9, eval_tasks=1, out=str(folder)))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    run = Watched(tmp_path_factory.mktemp("watched") / "run")
    control = Control(
        name="probe",
        sample=lambda knobs, state: replace(knobs, temperature=0.5),
        select=lambda trees, state: [
            Verdict.MORE if tree.task % 2 else Verdict.KEEP for tree in trees
        ],
        observe=run.observe,
    )
    propose = learner.Learner.propose
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            learner.Learner,
            "propose",
            lambda *args, **how: run.shares.append(args[3]) or propose(*args, **how),
        )
        run.collected, run.packed = spy(patch, rollouts, "collect"), spy(patch, loop, "pack")
        run.records = run_with(control, run.folder, patch)
    return run


@pytest.mark.slow
def test_a_stop_ends_the_run_after_its_step_with_a_validation_and_a_checkpoint(watched):
    assert [record.step for record in watched.records] == [0, 1, 2] and watched.records[
        -1
    ].valid is not None
    assert steps(watched.folder / "checkpoints")[-1].name == "step-000002"
    assert json.loads((watched.folder / "summary.json").read_text())["steps"] == 2


def test_controls_observe_rollout_and_update_of_every_step(watched):
    assert [(stats.step, stats.phase) for stats in watched.seen] == [
        (step, phase) for step in range(2) for phase in ("rollout", "update")
    ]
    for stats in watched.seen:
        assert (
            stats.last
            and stats.entropy > 0
            and stats.entropy_nested > 0
            and 0 <= stats.success <= 1
        )
        assert math.isnan(stats.clip_low) == (stats.phase == "rollout")


def test_dropped_trees_are_journaled_and_not_learned_from_and_more_are_drawn(watched):
    grown = journal(watched.folder)
    for (trees, *_), forest in zip(watched.packed, grown, strict=True):
        assert len(trees) == 2 and {tree.task for tree in trees} == {
            t.task for t in forest if t.task % 2 == 0
        }
        assert len({tree.task for tree in forest}) == len(forest)
    assert max(map(len, grown)) > 2
    for record, forest in zip(
        watched.records[1:], grown, strict=True
    ):  # the metrics count what was rolled out
        assert (
            record.metrics["paths"] == 3 * len(forest)
            and record.metrics["refilled"] == len(forest) - 2
        )


def test_knobs_reach_the_rollout_of_training_but_not_the_validation(watched):
    for tree in journal(watched.folder)[0]:
        assert {turn.temperature for turn in tree.turns if turn.role == "assistant"} == {0.5}
    for *_, options in watched.collected:
        assert options["sampling"].temperature == (
            1.0 if options["key"][1] == rollouts.VALIDATION else 0.5
        )


def test_the_learning_rate_falls_linearly_towards_its_end(watched):
    assert watched.shares == pytest.approx(
        [1.0, 1 - 0.9 / 2]
    )  # the third step, not taken, would have 0.1


def test_training_takes_train_tasks_and_validation_the_same_valid_tasks_every_time(watched):
    check_splits(watched.collected)


@pytest.mark.slow
def test_a_refused_step_is_written_down_and_the_run_goes_on_without_it(monkeypatch, tmp_path):
    objective, count, run = learner.objective, [0], Watched(tmp_path / "run")

    def wild(*arguments: Any) -> torch.Tensor:
        count[0] += 1
        return objective(*arguments) * (float("nan") if count[0] == 2 else 1.0)

    def observe(stats: Any, state: Any) -> Any:
        run.seen.append((stats.step, stats.phase))
        return state, frozenset()

    monkeypatch.setattr(learner, "objective", wild)
    run_with(Control(name="probe", observe=observe), run.folder, monkeypatch)
    lines = metrics(run.folder)
    assert [bool(line.get("refused")) for line in lines] == [False, False, True, False]
    assert "the loss is not finite in " in lines[2]["refused"] and lines[2]["loss"] is None
    assert {tree.turns[1].version for tree in journal(run.folder)[2]} == {
        1
    }  # step 3 acts with the weights of step 1
    assert run.seen == [
        (0, "rollout"),
        (0, "update"),
        (1, "rollout"),
        (2, "rollout"),
        (2, "update"),
    ]
    assert json.loads((run.folder / "summary.json").read_text())["refused_steps"] == 1


# --- a run that dies goes on as if it had not

QUICK = TINY.changed(env="turngym/Math-v0", steps=3, prompts=1, group=2, max_tokens=8, eval_tasks=1)


@pytest.fixture(scope="module")
def quiet(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """What a quick run writes when nothing disturbs it."""
    folder = tmp_path_factory.mktemp("runs") / "quiet"
    train(QUICK.changed(out=str(folder)))
    return written(folder)


def hit(
    patch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    call: int,
    blow: Callable[[], None],
    after: bool = False,
) -> None:
    """Deal the blow at the `call`-th call of a function: before it, or after."""
    calls, function = [0], getattr(owner, name)

    def struck(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == call and not after:
            blow()
        result = function(*arguments, **options)
        if calls[0] == call and after:
            blow()
        return result

    patch.setattr(owner, name, struck)


def go_on(config: TrainConfig) -> list[loop.Record]:
    return train(config.changed(resume=(Path(config.out) / "config.toml").exists()))


KILLS = {  # one after another in one run
    "before the first checkpoint has its name": (Path, "rename", 1, False),
    "in the first validation": (rollouts.Rollouts, "validate", 1, False),
    "after a journal": (run_folder.Logbook, "add_trees", 1, True),
    "in the middle of a checkpoint": (Policy, "save_adapter", 1, False),
    "between a checkpoint and its line": (run_folder.Logbook, "add_metrics", 2, False),
    "while an old checkpoint is removed": (checkpoint, "_remove", 1, False),
}


@pytest.mark.slow
def test_a_run_that_is_killed_at_named_points_comes_to_the_same_bytes(quiet, tmp_path):
    config, folder = QUICK.changed(out=str(tmp_path / "run")), tmp_path / "run" / "checkpoints"
    saves = [0, 1, 1, 1, 2, 3]  # whole ones after each
    for (point, (owner, name, call, after)), save in zip(KILLS.items(), saves, strict=True):
        child = os.fork()
        if not child:  # which must never return into the test
            try:
                with pytest.MonkeyPatch.context() as patch:
                    hit(
                        patch,
                        owner,
                        name,
                        call,
                        lambda: os.kill(os.getpid(), signal.SIGKILL),
                        after,
                    )
                    go_on(config)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, point
        assert len([checkpoint.verify(path) for path in steps(folder)]) == save, point
    go_on(config)
    files, lines = written(tmp_path / "run")
    assert lines == quiet[1]
    assert {name: text for name, text in files.items() if "step-000000/" not in name} == quiet[
        0
    ]  # removed with a save


PHASES = {  # one after another in one run: what strikes, and the step of the checkpoint that must be there then
    "first validation": (rollouts.Rollouts, "validate", 1, 0),
    "rollout": (rollouts, "collect", 2, 0),
    "gradient": (learner.Learner, "_backward", 1, 0),
    "weights": (learner.Learner, "apply", 1, 1),
    "line": (run_folder.Logbook, "add_metrics", 1, 1),
    "an environment's answer": (QuestionEnv, "on_step", 1, 1),
    "moments": (torch.optim.AdamW, "step", 1, 2),
    "validation": (rollouts.Rollouts, "validate", 1, 2),
    "checkpoint": (Policy, "save_adapter", 1, 3),
    "last line": (run_folder.Logbook, "add_metrics", 1, 3),
}


@pytest.mark.slow
def test_signals_in_every_phase_leave_a_checkpoint_of_the_last_boundary_and_the_same_bytes(
    quiet, tmp_path
):
    config = QUICK.changed(out=str(tmp_path / "run"))
    for place, (phase, (owner, name, call, step)) in enumerate(PHASES.items()):
        number = (signal.SIGTERM, signal.SIGINT)[place % 2]
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as left, endings():
            hit(patch, owner, name, call, partial(os.kill, os.getpid(), number))
            go_on(config)
        assert left.value.code == 128 + number, phase
        newest = checkpoint.latest(tmp_path / "run" / "checkpoints", check=read_boundary)
        assert read_boundary(newest).step == step, phase
    assert [record.step for record in go_on(config)] == [3]
    assert written(tmp_path / "run") == quiet


@pytest.mark.slow
def test_a_run_ends_after_the_step_in_which_its_tokens_are_spent_also_when_it_is_resumed(
    quiet, monkeypatch, tmp_path
):
    first = quiet[1][1]["tokens"]
    config = QUICK.changed(steps=9, token_budget=first + 1, out=str(tmp_path / "run"))
    train(config, until=1)
    assert (
        read_boundary(steps(tmp_path / "run" / "checkpoints")[-1]).tokens == 0
    )  # the step is taken again
    shares, propose = [], learner.Learner.propose
    monkeypatch.setattr(
        learner.Learner,
        "propose",
        lambda *args, **how: shares.append(args[3]) or propose(*args, **how),
    )
    records = train(config.changed(resume=True))
    assert [record.step for record in records] == [1, 2] and records[-1].valid is not None
    assert shares == pytest.approx([1.0, 1 - 0.9 * first / (first + 1)])
    at = read_boundary(steps(tmp_path / "run" / "checkpoints")[-1])
    assert (at.step, at.tokens) == (
        2,
        sum(line["tokens"] for line in metrics(tmp_path / "run")[1:]),
    )
    spent = rf"token_budget is {first + 1}, and the run in .* has drawn {at.tokens} tokens; ask for more to go on"
    with pytest.raises(ValueError, match=spent):
        prepare(config.changed(resume=True))
    assert [
        record.step for record in train(config.changed(token_budget=at.tokens + 1, resume=True))
    ] == [3]


@pytest.mark.slow
def test_a_second_signal_while_the_last_checkpoint_is_saved_does_not_tear_it(tmp_path, monkeypatch):
    def strike() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    config = QUICK.changed(out=str(tmp_path / "run"))
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as left, endings():
        hit(patch, learner.Learner, "propose", 2, strike)
        hit(patch, Policy, "save_adapter", 2, strike)
        train(config)
    assert left.value.code == 130
    assert read_boundary(checkpoint.latest(tmp_path / "run" / "checkpoints")).step == 1


@pytest.mark.slow
def test_a_signal_while_somebody_looks_at_a_record_reaches_the_run(tmp_path):
    config = QUICK.changed(out=str(tmp_path / "run"))
    with pytest.raises(SystemExit) as left, endings():
        for record in execute(prepare(config)):
            if record.step == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            assert record.step < 2
    assert left.value.code == 143
    assert read_boundary(checkpoint.latest(tmp_path / "run" / "checkpoints")).step == 1


def test_ctrl_c_without_the_command_line_saves_no_weights_that_are_half_changed(
    tmp_path, monkeypatch
):
    """Nothing shields the optimizer's step from Ctrl-C then, so that the checkpoint before is the one to go on from."""

    def strike() -> None:
        raise KeyboardInterrupt

    config = QUICK.changed(out=str(tmp_path / "run"))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        hit(patch, torch.optim.AdamW, "step", 2, strike, after=True)
        train(config)
    assert (
        read_boundary(checkpoint.latest(tmp_path / "run" / "checkpoints")).step == 0
    )  # not 1: its weights are gone


def test_what_a_control_does_to_its_state_in_mid_step_reaches_no_checkpoint(tmp_path, monkeypatch):
    def observe(stats: Any, state: Any) -> Any:
        state["seen"].append(stats.phase)  # in place, which a control must not do
        return state, frozenset()

    control = Control(name="probe", init=lambda: {"seen": []}, observe=observe)
    monkeypatch.setitem(METHODS, "probe", lambda: control)
    config = QUICK.changed(method="grpo,probe", out=str(tmp_path / "run"))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        hit(patch, learner.Learner, "propose", 2, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        train(config)
    at = read_boundary(checkpoint.latest(tmp_path / "run" / "checkpoints"))
    assert (at.step, at.cursor, at.state()) == (1, 1, [{}, {"seen": ["rollout", "update"]}])


def test_a_control_state_that_is_no_json_ends_the_run_before_the_weights_change(
    tmp_path, monkeypatch
):
    control = Control(name="probe", observe=lambda stats, state: ({"x": math.nan}, frozenset()))
    with pytest.raises(
        ValueError, match=r"the state of the controls is .*nan.*, which is no JSON data"
    ):
        run_with(control, tmp_path / "run", monkeypatch)
    assert [path.name for path in steps(tmp_path / "run" / "checkpoints")] == ["step-000000"]


def test_the_first_checkpoint_is_there_before_the_first_validation(tmp_path, monkeypatch):
    found = []
    hit(
        monkeypatch,
        rollouts.Rollouts,
        "validate",
        1,
        lambda: found.extend(steps(tmp_path / "run" / "checkpoints")),
    )
    train(QUICK.changed(steps=1, out=str(tmp_path / "run")), until=0)
    assert [path.name for path in found] == ["step-000000"]


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_written_down_and_replaced(quiet, tmp_path, caplog):
    config = QUICK.changed(out=str(tmp_path / "run"))
    train(config, until=2)
    damaged = tmp_path / "run" / "checkpoints" / "step-000002"
    (damaged / "optimizer.safetensors").unlink()
    records = go_on(config)
    assert [record.step for record in records] == [1, 2, 3]  # the line of step 0 is there
    (line,) = [
        line for line in incidents(tmp_path / "run") if line["kind"] != "alarm"
    ]  # its turns are cut
    assert (line["step"], line["kind"]) == (
        0,
        "checkpoint",
    ) and "'optimizer.safetensors' is missing" in line["what"]
    assert written(tmp_path / "run") == quiet


# --- steps without an update


def failing(
    patch: pytest.MonkeyPatch, bad: Container[int], outcome: Outcome = Outcome.INFRA_ERROR
) -> None:
    """Have every path of some steps fail, and `collect` say so."""
    collect = rollouts.collect

    def lost(*arguments: Any, **options: Any) -> list[Tree]:
        trees = collect(*arguments, **options)
        step = options["key"][1]
        if step not in bad:
            return trees
        options["on_incident"](Incident("failed", "the grader is gone", (*trees[0].key, 0)))
        gone = {"outcome": outcome, "stop": str(outcome), "score": math.nan}
        return [
            replace(tree, leaves=[replace(leaf, **gone) for leaf in tree.leaves]) for tree in trees
        ]

    patch.setattr(rollouts, "collect", lost)


def incidents(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "incidents.jsonl").read_text().splitlines()]


def test_calls_in_another_models_format_are_said_once(tmp_path, monkeypatch):
    real = rollouts.collect

    def foreign(*args, **options):
        trees = real(*args, **options)
        for tree in trees:
            told = {"foreign_call": "Kimi's"}
            tree.turns = [
                replace(turn, info={**turn.info, **told}) if turn.role == "assistant" else turn
                for turn in tree.turns
            ]
        return trees

    monkeypatch.setattr(rollouts, "collect", foreign)
    train(QUICK.changed(out=str(tmp_path / "run")))
    (told,) = [line for line in incidents(tmp_path / "run") if line["kind"] == "foreign"]
    assert told["step"] == 1
    what = "2 turns of the step hold a call in Kimi's format, not read; turngym has no such format"
    assert told["what"].startswith(what)


def test_a_step_whose_paths_all_failed_is_one_without_update(tmp_path, monkeypatch):
    failing(monkeypatch, {1})
    config = QUICK.changed(method="grpo,epo", out=str(tmp_path / "run"))
    records = train(config)
    assert [record.step for record in records] == [0, 1, 2, 3]
    line = metrics(tmp_path / "run")[2]
    why = "1 trees hold nothing to learn from; their paths ended by infra_error"
    assert (
        line["refused"],
        line["reward"],
        line["loss"],
        line["failed" if "failed" in line else "paths"],
    ) == (
        why,
        None,
        None,
        2,
    )
    found = [
        line for line in incidents(tmp_path / "run") if line["kind"] != "alarm"
    ]  # its turns are cut
    told = [(line["step"], line["kind"], line["what"]) for line in found]
    assert told == [(2, "failed", "the grader is gone"), (2, "refused", why)]
    assert {tree.turns[1].version for tree in journal(tmp_path / "run")[2]} == {1}
    assert read_state(tmp_path / "run" / "checkpoints" / "step-000003")["control"][1]["step"] == 2


@pytest.mark.slow
def test_refused_updates_in_a_row_end_the_run_with_a_checkpoint_and_a_line_for_each(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "REFUSALS", 3)
    config = QUICK.changed(steps=7, eval_every=9, out=str(tmp_path / "run"))
    with monkeypatch.context() as patch:
        failing(patch, {0, 2, 3, 4, 5})
        with pytest.raises(
            loop.Refusals,
            match=r"3 steps in a row had no update, the last because 1 trees hold nothing",
        ):
            train(config)
    lines = metrics(tmp_path / "run")
    assert [bool(line.get("refused")) for line in lines] == [False, True, False, True, True, True]
    at = read_boundary(checkpoint.latest(tmp_path / "run" / "checkpoints"))
    assert (at.step, at.version, at.refused) == (5, 1, 3)
    with monkeypatch.context() as patch:
        failing(patch, {5})
        with pytest.raises(
            loop.Refusals, match="4 steps in a row"
        ):  # it is no better: one more try, and no more
            go_on(config)
    assert [record.step for record in go_on(config)] == [7]
    assert [line["step"] for line in metrics(tmp_path / "run")] == list(range(8))


def test_broken_weights_end_the_run_and_leave_its_checkpoints(tmp_path, monkeypatch):
    def breaks() -> None:
        raise FloatingPointError("the policy's logits are not finite")

    hit(monkeypatch, rollouts, "collect", 3, breaks)
    with pytest.raises(FloatingPointError, match="the policy's logits are not finite"):
        train(QUICK.changed(out=str(tmp_path / "run")))
    assert [path.name for path in steps(tmp_path / "run" / "checkpoints")] == ["step-000000"]


def test_what_a_control_asks_for_in_a_refused_step_is_not_done(tmp_path, monkeypatch):
    asked, cleared = [], []
    control = Control(
        name="probe",
        observe=lambda stats, state: (
            state,
            frozenset(
                [Request.RESET_OPTIMIZER, Request.STOP]
                if stats.step == 0 and not asked.append(1)
                else []
            ),
        ),
    )
    hit(monkeypatch, learner.Learner, "reset_optimizer", 1, lambda: cleared.append(1))
    monkeypatch.setattr(learner, "check", lambda terms, packed: _refuse(packed))
    with monkeypatch.context() as patch:
        patch.setitem(METHODS, "probe", lambda: control)
        records = train(
            QUICK.changed(method="grpo,probe", steps=2, eval_every=9, out=str(tmp_path / "run"))
        )
    assert [record.step for record in records] == [0, 1, 2] and asked and not cleared


def _refuse(packed: Any) -> None:
    if packed.keys[0][1] == 0:
        raise BadUpdate("for a test", packed.keys[0])


@pytest.mark.slow
def test_several_updates_on_a_rollout_are_one_step(tmp_path):
    """The rollout is learned from twice, the second time with what the first left; a killed run goes on the same."""
    seen: list[Any] = []

    def observe(stats, state):
        seen.append((stats.step, stats.phase, stats.last))
        return {"seen": state["seen"] + 1}, frozenset()

    def shape(terms, batch, now, state):
        moved = (now.logp - batch.logp_old).abs().max()
        assert (moved > 1e-4) == (state["seen"] % 3 == 2), (
            "`now` is the old policy in the first update alone"
        )
        return terms

    control = Control(
        name="probe", needs=Needs(now=True), init=lambda: {"seen": 0}, shape=shape, observe=observe
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "probe", lambda: control)
        config = TINY.changed(
            method="grpo,entropy-bonus:coef=0.1,probe",
            updates=2,
            steps=2,
            lr=2e-2,
            out=str(tmp_path / "run"),
        )
        records = train(config)
        assert seen == [
            (step, phase, last)
            for step in range(2)
            for phase, last in (("rollout", True), ("update", False), ("update", True))
        ]
        assert [record.metrics.get("updates") for record in records] == [None, 2, 2]
        assert read_boundary(steps(tmp_path / "run" / "checkpoints")[-1]).version == 4
        other = config.changed(out=str(tmp_path / "other"))
        train(other, until=1)
        train(other.changed(resume=True))
    assert written(tmp_path / "run") == written(tmp_path / "other")


@pytest.mark.slow
def test_an_alarm_is_told_once_and_a_resumed_run_tells_the_same(tmp_path, monkeypatch):
    monkeypatch.setitem(alarms.SHARES, "silent_groups", ("silent-groups", -1.0))
    monkeypatch.setitem(alarms.SHARES, "turns/cut", ("cut-turns", 1.0))  # its turns are short
    monkeypatch.setattr(alarms, "CUT_AT_ONCE", 1.0)
    config = QUICK.changed(steps=6, out=str(tmp_path / "run"))
    records = train(config)
    assert [[one.kind for one in record.begun] for record in records] == [
        *[[]] * 5,
        ["silent-groups"],
        [],
    ]
    assert [line.get("alarms") for line in metrics(tmp_path / "run")] == [
        None,
        *[[]] * 4,
        *[["silent-groups"]] * 2,
    ]
    (told,) = incidents(tmp_path / "run")
    assert (told["step"], told["kind"]) == (5, "alarm") and "silent_groups is" in told["what"]
    other = config.changed(out=str(tmp_path / "other"))
    train(other, until=3)
    train(other.changed(resume=True))
    assert written(tmp_path / "run") == written(tmp_path / "other")
    assert incidents(tmp_path / "other") == [told]
