"""SPEAR (agentic.md, sheet J6): schedules, what is kept, judged anew and drawn, Clip-Cov (control.md, sheet H)."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from turngym.agents.engines.torch import TorchEngine
from turngym.agents.journal.trees import read_trees
from turngym.tests.support.toy import now_of
from turngym.training.control.control import Control, Stats, advantages
from turngym.training.data.batch import Now
from turngym.training.loss.objective import objective, start_terms
from turngym.training.loss.surrogates import clip_cov
from turngym.training.methods.sampling.spear import (
    better,
    chosen,
    gamma,
    newest,
    recalibrated,
    spear,
    tool_weight,
)
from turngym.training.runs.config import TrainConfig
from turngym.training.runs.run import execute, prepare


@pytest.mark.parametrize(
    ("step", "strength"),
    [(0, 0), (25, 0.038060), (50, 0.146447), (100, 0.5), (150, 0.853553), (200, 1), (999, 1)],
)
def test_sheet_j6_table_of_the_strength(step, strength) -> None:
    assert gamma(step, 200) == pytest.approx(strength, abs=1e-6)
    assert gamma(step, 200, 0.5) == pytest.approx(strength / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("step", "weight"), [(0, 1), (25, 0.853553), (50, 0.5), (100, 0), (101, 0), (300, 0)]
)
def test_sheet_j6_table_of_the_bonus(step, weight) -> None:
    assert tool_weight(step, 100) == pytest.approx(weight, abs=1e-6)


def test_sheet_j6_example_of_the_new_advantage() -> None:
    rows = [[0, 3, 1, 0, 1.0], [0, 3, 1, 1, 0.0], [0, 3, 1, 2, 0.4]]
    found = recalibrated(rows, [[0.2, 0.4], [0.5, 0.7, 0.1]])
    assert found == {
        (0, 3, 1, 0): pytest.approx(0.6, abs=1e-6),
        (0, 3, 1, 2): pytest.approx(0.0, abs=1e-6),
    }
    assert recalibrated(rows, []) == {}


A = [2.0, 2.0, 2.0, -1.0, -1.0, -1.0]
LOGP = [-0.05, -0.1, -3.0, -0.02, -2.5, -4.0]
GAP = [0.02, -0.1, 0.05, 0.01, -0.02, 0.3]


def test_sheet_h_example_of_clip_cov() -> None:
    advantage, logp, gap = (torch.tensor(column, dtype=torch.float64) for column in (A, LOGP, GAP))
    loss = -advantage * gap.exp()
    drawn = set()
    for step in range(60):
        left = clip_cov(advantage, logp, logp - gap, 1.0, 1.0, 1e-3, 1.0, 5.0, (step,))
        assert left.sum() == 1
        drawn.add(int(left.nonzero()))
        if left[0]:
            assert torch.where(left, 0.0, loss).mean().item() == pytest.approx(-0.095352, abs=1e-6)
    assert drawn == {0, 1, 4, 5}
    assert clip_cov(
        advantage, logp, logp - gap, 1.0, 1.0, 0.9, 1.0, 5.0, (0,)
    ).nonzero().flatten().tolist() == [
        0,
        1,
        4,
        5,
    ]
    for low, high, share in ((9.0, 40.0, 0.5), (1.0, 5.0, 0.0)):
        assert not clip_cov(advantage, logp, logp - gap, 1.0, 1.0, share, low, high, (0,)).any()


def test_tokens_that_the_clip_holds_are_not_clip_cov() -> None:
    advantage, logp = torch.tensor([2.0, 2.0, -1.0]), torch.tensor([-0.1, -0.2, -4.0])
    gap = torch.tensor([0.5, 0.0, -0.5])
    left = clip_cov(advantage, logp, logp - gap, 0.2, 0.28, 1.0, 0.1, 40.0, (0,))
    assert left.tolist() == [False, True, False]


def scores(step, groups):
    """Return the scores of a step's groups as `Stats` has them."""
    return {
        (7, step, task, branch): score
        for task, own in enumerate(groups)
        for branch, score in enumerate(own)
    }


def test_what_did_better_than_its_group_is_kept() -> None:
    kept, means = better(scores(2, [[1.0, 0.0, 0.5], [0.1, 0.1, 0.1], [1.0]]))
    assert kept == [[7, 2, 0, 0, 1.0]]  # equal scores exceed no mean, whatever its last bit
    assert means == pytest.approx([0.5, 0.1, 1.0])


def told(step, groups=(), phase="rollout", last=True):
    return Stats(step, phase, last=last, scores=scores(step, groups))


def test_what_is_kept_grows_old_and_is_drawn_when_there_is_enough() -> None:
    control = spear(size=4, age=2, groups=5)
    state = control.init()
    for step in range(5):
        state, _ = control.observe(told(step, [[1.0, 0.0], [0.0, 1.0]]), state)
        assert {row[1] for row in state["kept"]} == {*range(max(step - 2, 0), step + 1)}
        assert sum(map(len, state["history"])) <= 5 and state["step"] == step
        assert state["again"] == [] and control.replay(state) is None
        assert json.loads(json.dumps(state)) == state
    assert len(state["kept"]) == 6  # not more than 1.5 · 4
    assert control.observe(told(4, phase="update"), state)[0] == state
    state, _ = control.observe(told(5, [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0]]), state)
    assert control.observe(told(5, phase="update", last=False), state)[0] == state
    after, _ = control.observe(told(5, phase="update"), state)
    assert (
        after["kept"] == []
        and len(after["again"]) == 4
        and all(row in state["kept"] for row in after["again"])
    )
    assert after == control.observe(told(5, phase="update"), json.loads(json.dumps(state)))[0]
    assert control.replay(after).advantage == {tuple(row[:4]): 0.5 for row in after["again"]}
    assert control.observe(told(6, [[0.0, 1.0]]), after)[0]["again"] == []


def test_a_power_of_two_is_drawn() -> None:
    rows = [[0, 1, 0, branch, 1.0] for branch in range(21)]
    assert [len(chosen(rows[:have], 16, 3)) for have in (1, 3, 7, 8, 21)] == [1, 2, 4, 8, 16]
    assert chosen(rows, 8, 3) == chosen(rows, 8, 3) != chosen(rows, 8, 4)
    assert newest([[1.0] * 3, [2.0] * 2, [3.0]], 3) == [[2.0] * 2, [3.0]]


def test_nothing_is_replayed_with_a_coefficient_of_zero() -> None:
    control = spear(size=1, coef=0.0)
    state, _ = control.observe(told(0, [[1.0, 0.0], [1.0, 0.0]]), control.init())
    assert control.observe(told(0, phase="update"), state)[0] == state


def test_the_bonus_counts_turns_and_fades(batch_of) -> None:
    batch = batch_of([[1, 1], [1]], scores=[0.5, 1.0])
    state = {**spear().init(), "step": 50}
    assert advantages(spear(), batch, state).tolist() == pytest.approx([0.6, 0.6, 1.05])
    assert advantages(spear(bonus=3.0), batch, {**state, "step": 0}).tolist() == pytest.approx(
        [1.5, 1.5, 2.0]
    )
    assert advantages(spear(), batch, {**state, "step": 101}).tolist() == [0.5, 0.5, 1.0]


def test_the_replay_is_ppo_at_its_strength_and_raises_what_did_well(toy) -> None:
    control = spear(size=1, warm=100, share=0.0)
    state = {"step": 50, "kept": [], "history": [[0.25]], "again": [[0, 1, 0, 0, 1.0]]}
    again = control.replay(state)
    assert again.advantage == {(0, 1, 0, 0): 0.75}
    batch, logits = toy.batch, toy.logits.clone().requires_grad_()
    current = toy.current(logits)
    plain = start_terms(torch.full_like(batch.logp_old, 0.75))
    terms = again.shape(plain, batch, now_of(current))
    assert terms.weight.tolist() == pytest.approx([0.5] * batch.n_slots)
    assert set(terms.clip_low.tolist()) == {0.2} and set(terms.clip_high.tolist()) == {0.28}
    objective(current, batch, terms, batch.n_slots).backward()
    ratio = (current.logp - batch.logp_old).exp()
    r = ratio.detach().numpy()
    value = np.minimum(r * 0.75, r.clip(0.8, 1.28) * 0.75).mean()
    assert objective(current, batch, terms, batch.n_slots).item() == pytest.approx(
        -0.5 * value.item()
    )
    moved = toy.current(logits.detach() - 0.1 * logits.grad).logp - current.logp.detach()
    assert (moved[ratio < 1.28] > 0).all() and (moved[ratio > 1.28] == 0).all()


def test_the_replay_leaves_out_a_share_of_its_tokens(toy) -> None:
    control = spear(size=1, warm=1, share=0.5, low=-1e9, high=1e9, clip_high=1e9)
    again = control.replay(
        {"step": 9, "kept": [], "history": [[0.0]], "again": [[0, 1, 0, 0, 1.0]]}
    )
    now = Now(toy.batch.logp_old + 0.1, toy.batch.entropy)
    terms = again.shape(start_terms(torch.ones_like(toy.batch.logp_old)), toy.batch, now)
    assert (terms.weight == 0).sum() == toy.batch.n_slots // 2 and terms.weight.max() == 1


def test_it_leaves_the_on_policy_steps_as_they_are(toy) -> None:
    control = spear(bonus=0.0)
    assert control.sets == {"replay"} and control.credit is None
    assert toy.learn(control, control.init())[0] == toy.learn(Control(name="nothing"), {})[0]


TINY = TrainConfig().changed(
    method="grpo:normalize=none,spear:size=1,warm=2",
    difficulty=(1,),
    steps=3,
    prompts=2,
    group=6,
    max_tokens=24,
    lr=5e-3,
    eval_every=2,
    eval_tasks=1,
    threads=1,
)


def train(config, until=None):
    run = execute(prepare(config))
    for record in run:
        if record.step == until:
            break
    run.close()
    folder = Path(config.out)
    files = [
        path
        for part in ("trees", "checkpoints")
        for path in sorted((folder / part).rglob("*"))
        if path.is_file()
    ]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {path.relative_to(folder): path.read_bytes() for path in files}, lines


@pytest.mark.slow
def test_a_run_learns_from_its_journals_again_and_goes_on_to_the_byte_where_it_was_killed(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(TorchEngine, "mode_reason", "")  # leaves the engine's start-up probe out
    moved = []

    def watched(advantage, logp, logp_old, *rest):
        moved.append((logp - logp_old).abs().max().item())
        return clip_cov(advantage, logp, logp_old, *rest)

    monkeypatch.setitem(spear.__wrapped__.__globals__, "clip_cov", watched)
    files, lines = train(TINY.changed(out=str(tmp_path / "whole")))
    replayed = [line.get("replayed", 0) for line in lines]
    assert sum(replayed) > 0 and all(count & (count - 1) == 0 for count in replayed)
    state = json.loads(files[Path("checkpoints/step-000003/state.json")])["control"][1]
    assert state["step"] == 2
    assert (
        min(moved) > 1e-4
    )  # Clip-Cov sees the policy as it is, no longer that which drew the paths
    versions = 0
    for step, line in enumerate(lines[1:], 1):
        trees = list(read_trees(tmp_path / "whole" / "trees" / f"step-{step:06d}.jsonl"))
        assert {
            turn.version for tree in trees for turn in tree.turns if turn.role == "assistant"
        } == {versions}
        versions += line["updates"] + (line["replayed"] > 0)
    config = TINY.changed(out=str(tmp_path / "killed"))
    train(config, until=2)
    assert train(config.changed(resume=True))[0] == files
