"""The learner against real rollouts of tiny and of a random tied Qwen2, both with an adapter that already does much."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from turngym.agents.chat.chat import Chat
from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engine import Sampling
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.journal.checkpoint import CheckpointError
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import Policy, load_policy
from turngym.agents.rollout.collect import collect
from turngym.agents.rollout.path import Actor
from turngym.agents.trajectory import Event, Leaf, Spawn, Tree
from turngym.envs import Outcome, Reply, StopReason, TextEnv
from turngym.tests.support.policies import take
from turngym.training.control.chain import chain
from turngym.training.control.control import Control, Needs
from turngym.training.data.batch import Penalty
from turngym.training.data.packing import Packed, pack
from turngym.training.loop import learner as module
from turngym.training.loop.learner import Learner, Update
from turngym.training.methods import parse_methods
from turngym.training.model import chunked_head as head

SPEC = LoraOptions(rank=4, alpha=8)


class Talk(TextEnv):
    """Answers anything for `1 + task` turns and pays by what was said."""

    tasks = range(100)

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        self.task, self.task_id = options["task"], f"talk-{options['task']}"
        return "word " * (1 + 7 * self.task)

    def on_step(self, text: str) -> Reply:
        stop = StopReason.ANSWERED if self.turn == self.task else None
        return Reply(
            "and " * (1 + sum(map(ord, text)) % 5), reward=float(sum(map(ord, text)) % 3), stop=stop
        )


@dataclass
class Setting:
    """A policy, and trees of 1 to 4 turns that it grew at a temperature."""

    policy: Policy
    trees: Mapping[float, list[Tree]]

    def learner(self, method: str = "grpo", **options: Any) -> Learner:
        return Learner(
            self.policy, chain(*parse_methods(method)), **{"lr": 1e-3, "clip_norm": 1e9, **options}
        )


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 with a tied head and grouped queries that speaks with tiny's tokenizer."""
    folder = tmp_path_factory.mktemp("qwen2")
    for path in TINY.glob("tokenizer*.json"):
        shutil.copy(path, folder)
    config = Qwen2Config(
        vocab_size=648,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def grown(folder: Path, group: int = 4) -> Setting:
    policy = load_policy(folder, lora=SPEC)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.trainable_parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    engine = TorchEngine(policy)
    actor, env = Actor(engine, Chat.from_folder(folder), policy.end_ids), Talk()
    trees = {
        heat: collect(
            actor,
            env,
            range(4),
            group=group,
            key=(0, 0),
            sampling=Sampling(temperature=heat, max_tokens=5),
        )
        for heat in (1.0, 0.7)
    }
    engine.close()
    return Setting(policy, trees)


@pytest.fixture(scope="module", params=[pytest.param("tiny", marks=pytest.mark.slow), "qwen2"])
def setting(request: pytest.FixtureRequest) -> Setting:
    return grown(TINY, 2) if request.param == "tiny" else request.getfixturevalue("one")


@pytest.fixture(scope="module")
def one(qwen2: Path) -> Setting:
    """The cheaper of the two settings, for what does not depend on the model."""
    return grown(qwen2)


def snapshot(policy: Policy) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.model.named_parameters()}


def restore(policy: Policy, weights: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            parameter.copy_(weights[name])


def update(learner: Learner, packed: Packed, state: Any = None) -> tuple[Update, Tensor]:
    """Take a step from where the policy is and go back; return what it did and its gradient, end to end."""
    before = snapshot(learner.policy)
    found = take(learner, packed, learner.control.init() if state is None else state)
    gradient = torch.cat(
        [(p.grad if p.grad is not None else p * 0).flatten() for p in learner.parameters.values()]
    )
    restore(learner.policy, before)
    return found, gradient.detach().clone()


def apart(one: Tensor, other: Tensor) -> float:
    """How far apart two gradients are, relative to their length."""
    return float((one - other).norm() / other.norm())


# --- what was sampled is what is learned from


@pytest.mark.parametrize("heat", [1.0, 0.7])
@pytest.mark.parametrize("micro_tokens", [pytest.param(1, marks=pytest.mark.slow), 200, 100_000])
def test_first_update_identity(setting, heat, micro_tokens):
    """Recomputed logp and entropy are the sampler's own within 3e-5, alone and laid out together, over 1-4 turns."""
    packed, learner = pack(setting.trees[heat]), setting.learner(micro_tokens=micro_tokens)
    assert packed.batch.turns.turn.unique().tolist() == [0, 1, 2, 3]
    paths = packed.batch.n_paths
    cuts = list(packed.micro_batches(micro_tokens, torch.ones(paths, dtype=torch.bool)))
    assert {1: len(cuts) == paths, 200: 1 < len(cuts) < paths, 100_000: len(cuts) == 1}[
        micro_tokens
    ]
    drift = 0.0
    with torch.no_grad():
        for paths in cuts:
            current, batch = learner.forward(packed, paths), packed.batch.slice(paths)
            torch.testing.assert_close(current.logp, batch.logp_old, rtol=0, atol=3e-5)
            torch.testing.assert_close(current.entropy, batch.entropy, rtol=0, atol=3e-5)
            drift = max(drift, float((current.logp - batch.logp_old).abs().max()))
    found, _ = update(
        setting.learner("grpo,entropy-bonus", micro_tokens=micro_tokens), packed
    )  # every path moves
    assert found.drift == drift <= 3e-5 and found.idle == 0
    assert found.means["clip_low"] == found.means["clip_high"] == 0


def test_drift_is_seen_where_engine_and_learner_disagree(one):
    packed = pack(one.trees[1.0])
    off = packed.batch.logp_old.clone()
    off[5] += 0.25
    found, _ = update(
        one.learner("grpo,entropy-bonus"),
        replace(packed, batch=replace(packed.batch, logp_old=off)),
    )
    assert found.drift == pytest.approx(0.25, abs=1e-5)


def noise_elsewhere(policy: Policy, trees: list[Tree]) -> Any:
    """Make every hidden state that predicts no sampled token noise, as the trees tell which, and so its logits."""
    drawn = {}
    for tree in trees:
        for leaf in tree.leaves:
            mask = np.concatenate([tree.turns[node].sampled for node in tree.path(leaf)])
            drawn[tuple(tree.tokens(leaf).tolist())] = mask
    rng = torch.Generator().manual_seed(9)
    hits = []

    def disturb(module: Any, arguments: Any, options: Any, output: Any) -> Any:
        hidden, (ids,) = output.last_hidden_state, options["input_ids"]
        keep = torch.zeros(1, len(ids), dtype=torch.bool)
        for place in options["layout"].places:
            keep[0, place[:-1][torch.from_numpy(drawn[tuple(ids[place].tolist())][1:])]] = True
        hits.append(int((~keep).sum()))
        noise = torch.randn(hidden.shape, generator=rng) * 50
        output.last_hidden_state = torch.where(keep[..., None], hidden, noise)
        return output

    return policy.base.model.register_forward_hook(disturb, with_kwargs=True), hits


@pytest.mark.parametrize("method", ["grpo,epo", "grpo:kl_coef=0.1,entropy-bonus:coef=0.1"])
def test_noise_in_the_logits_of_tokens_that_were_not_sampled_changes_nothing(setting, method):
    trees = setting.trees[1.0]
    packed, learner = pack(trees), setting.learner(method, micro_tokens=400)
    state = learner.control.init()
    for part in state:
        if "count" in part:
            part |= {"sum": 2.0, "count": 1}  # a history: EPO's band is on
    plain, gradient = update(learner, packed, state)
    handle, hits = noise_elsewhere(setting.policy, trees)
    try:
        noisy, other = update(setting.learner(method, micro_tokens=400), packed, state)
    finally:
        handle.remove()
    assert sum(hits) > packed.batch.n_slots  # there was much to disturb
    assert noisy == plain and torch.equal(gradient, other) and gradient.norm() > 0


# --- one optimizer step, however it is computed


def reference(setting: Setting, trees: list[Tree]) -> Tensor:
    """The GRPO gradient from its equation: path by path, on the full logits, advantages by hand, N of all paths."""
    policy, total, count = setting.policy, torch.zeros(()), 0
    for tree in trees:
        scores = np.array([leaf.score for leaf in tree.leaves])
        advantages = (scores - scores.mean()) / (scores.std(ddof=1) + 1e-6)
        for leaf, advantage in zip(tree.leaves, advantages):
            tokens = torch.from_numpy(tree.tokens(leaf).astype(np.int64))
            drawn = np.concatenate([tree.turns[node].sampled for node in tree.path(leaf)])
            heat = tree.turns[leaf.node].temperature
            logp = (policy.model(input_ids=tokens[None]).logits[0, :-1] / heat).log_softmax(-1)
            logp = logp.gather(-1, tokens[1:, None])[:, 0][torch.from_numpy(drawn[1:])]
            total = (
                total - float(advantage) * logp.sum()
            )  # the ratio is 1, its gradient that of logp
            count += int(drawn.sum())
    parameters = list(policy.trainable_parameters().values())
    return torch.cat([part.flatten() for part in torch.autograd.grad(total / count, parameters)])


def test_the_gradient_is_that_of_the_equation_with_one_count_of_tokens_for_the_whole_step(setting):
    packed = pack(setting.trees[0.7])
    expected = reference(setting, setting.trees[0.7])
    for micro_tokens in (1, 100_000):
        _, gradient = update(setting.learner(micro_tokens=micro_tokens), packed)
        assert apart(gradient, expected) < 3e-5  # the ratio is of numbers that differ by as much


@pytest.mark.parametrize(
    "method",
    [pytest.param("grpo,epo", marks=pytest.mark.slow), "grpo:kl_coef=0.1,entropy-bonus:coef=0.1"],
)
def test_micro_batches_change_neither_gradient_nor_loss(setting, method):
    packed = pack(setting.trees[0.7])
    whole, gradient = update(setting.learner(method, micro_tokens=100_000), packed)
    for micro_tokens in (1, 300):
        found, other = update(setting.learner(method, micro_tokens=micro_tokens), packed)
        assert apart(other, gradient) < 5e-6  # what float32 leaves: each is as far from float64
        assert found.loss == pytest.approx(whole.loss, abs=1e-6)
        assert found.grad_norm == pytest.approx(whole.grad_norm, rel=3e-6)
        assert found.means == pytest.approx(whole.means, abs=1e-5)


@pytest.mark.parametrize("count", [2, 3, 99])
def test_minibatches_are_whole_trees_whose_advantages_are_those_among_all(setting, count):
    """Weighed by their slots, gradients of the parts are that of the whole; whitened advantages are the whole's."""
    packed = pack(setting.trees[0.7])
    learner = setting.learner("reinforce-pp")
    parts = packed.parts(count)
    assert [path for part in parts for path in part] == list(range(packed.batch.n_paths))
    assert len(parts) == min(count, len({key[:-1] for key in packed.keys}))
    total, gradient = torch.zeros(()), update(learner, packed)[1]
    for paths in parts:
        before, part = snapshot(learner.policy), packed.part(paths)
        assert not {key[:-1] for key in part.keys} & {
            key[:-1] for key in packed.keys if key not in part.keys
        }
        assert int(part.batch.row.max()) < len(
            part.batch.turns.path
        ) and part.batch.turns.path.max() < len(paths)
        learner.propose(packed, learner.control.init(), paths=paths)
        found = torch.cat(
            [
                (p.grad if p.grad is not None else p * 0).flatten()
                for p in learner.parameters.values()
            ]
        )
        total = total + found.detach() * part.batch.n_slots / packed.batch.n_slots
        restore(learner.policy, before)
    assert apart(total, gradient) < 1e-5


def test_a_control_may_need_the_log_probabilities_of_another_temperature(setting):
    packed = pack(setting.trees[0.7])
    plain, tempered = (
        setting.learner("grpo"),
        Learner(setting.policy, Control(name="t", needs=Needs(temperature=1.0)), 1e-3),
    )
    once, again = plain.now(packed), tempered.prepare(packed)
    logp = plain.now(replace(packed, temperature=torch.ones_like(packed.temperature))).logp
    assert torch.equal(again.batch.logp_old, logp) and not torch.allclose(logp, once.logp)
    assert torch.equal(again.batch.logp_roll, packed.batch.logp_roll)
    with pytest.raises(ValueError, match="temperatures"):
        chain(tempered.control, Control(name="u", needs=Needs(temperature=0.5)))


@pytest.mark.parametrize("method", ["grpo", "grpo,entropy-bonus:coef=0.1"])
def test_logits_that_are_computed_again_have_the_same_gradient(setting, method, monkeypatch):
    packed = pack(setting.trees[0.7])
    whole, gradient = update(setting.learner(method), packed)
    monkeypatch.setattr(head, "CHUNK_ELEMENTS", 7 * setting.policy.vocabulary)
    found, other = update(setting.learner(method), packed)
    assert apart(other, gradient) < 5e-6 and found.loss == pytest.approx(whole.loss, abs=1e-6)


def level(trees: list[Tree], tasks: tuple[int, ...]) -> list[Tree]:
    """The trees with all branches of some tasks paid alike, so that they teach nothing."""
    same = [[replace(leaf, score=1.0) for leaf in tree.leaves] for tree in trees]
    return [
        replace(tree, leaves=even if tree.task in tasks else tree.leaves)
        for tree, even in zip(trees, same)
    ]


def test_paths_without_any_term_are_skipped_and_leave_the_same_gradient(one, monkeypatch):
    packed, computed = pack(level(one.trees[1.0], (1, 3))), []
    learner = one.learner(micro_tokens=300)
    forward = learner.forward
    monkeypatch.setattr(
        learner, "forward", lambda packed, paths: computed.extend(paths) or forward(packed, paths)
    )
    skipped, gradient = update(learner, packed)
    assert {packed.names[path].split()[0] for path in computed} == {"talk-0", "talk-2"}
    assert skipped.idle >= 0.5 and len(computed) == round(16 * (1 - skipped.idle))
    monkeypatch.setattr(
        module, "moving", lambda terms, batch: torch.ones(batch.n_paths, dtype=torch.bool)
    )
    full, other = update(one.learner(micro_tokens=300), packed)
    assert full.idle == 0 and apart(gradient, other) < 1e-6
    assert skipped.loss == pytest.approx(full.loss, abs=1e-7)


def test_a_step_in_which_nothing_moves_takes_none(one):
    packed, before = pack(level(one.trees[1.0], (0, 1, 2, 3))), snapshot(one.policy)
    learner, version = one.learner(), one.policy.version
    found = take(learner, packed, learner.control.init())
    assert (found.idle, found.loss, found.grad_norm, found.refused) == (1.0, 0.0, 0.0, "")
    assert one.policy.version == version and not learner.optimizer.state
    assert all(torch.equal(weight, before[name]) for name, weight in snapshot(one.policy).items())


def test_only_lora_weights_get_gradients_and_frozen_weights_keep_their_bits(setting):
    before, version = snapshot(setting.policy), setting.policy.version
    learner = setting.learner("grpo,epo")
    found = take(learner, pack(setting.trees[1.0]), learner.control.init())
    after = snapshot(setting.policy)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == set(setting.policy.trainable_parameters())
    assert {n for n, p in setting.policy.model.named_parameters() if p.grad is not None} == moved
    assert found.refused == "" and setting.policy.version == version + 1
    restore(setting.policy, before)


def test_the_gradient_is_clipped_to_its_norm(one):
    packed, before = pack(one.trees[1.0]), snapshot(one.policy)
    learner = one.learner(clip_norm=0.01)
    found = take(learner, packed, learner.control.init())
    clipped = torch.cat([p.grad.flatten() for p in learner.parameters.values()]).norm()
    assert found.grad_norm > 0.01 and float(clipped) == pytest.approx(0.01, rel=1e-3)
    restore(one.policy, before)


def test_the_step_lowers_the_loss(one):
    packed, before = pack(one.trees[1.0]), snapshot(one.policy)
    learner = one.learner(lr=1e-3)
    losses = [take(learner, packed, learner.control.init()).loss for _ in range(4)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] - 1e-3
    restore(one.policy, before)


def test_a_share_of_the_learning_rate_moves_the_weights_that_much_less(one):
    packed, before, moved = pack(one.trees[1.0]), snapshot(one.policy), []
    for share in (1.0, 0.25):
        learner = one.learner(lr=1e-2)
        take(learner, packed, learner.control.init(), share)
        moved.append(
            torch.cat([(p.detach() - before[n]).flatten() for n, p in learner.parameters.items()])
        )
        restore(one.policy, before)
    torch.testing.assert_close(moved[1], moved[0] / 4, rtol=1e-3, atol=1e-6)
    assert moved[0].abs().max() == pytest.approx(1e-2, rel=1e-2)  # Adam's first step


# --- a step with anything in it that is not finite is not taken


def spoiled(trees: list[Tree], what: str, value: float) -> list[Tree]:
    """The trees with one number of task 2, branch 1 replaced."""
    tree = trees[2]
    leaf = tree.leaves[1]
    if what == "score":
        leaves = [replace(x, score=value) if x is leaf else x for x in tree.leaves]
        return [*trees[:2], replace(tree, leaves=leaves), *trees[3:]]
    node = tree.replies(leaf)[1]
    column = getattr(tree.turns[node], what).copy()
    column[-1] = value
    turns = [
        replace(turn, **{what: column}) if i == node else turn for i, turn in enumerate(tree.turns)
    ]
    return [*trees[:2], replace(tree, turns=turns), *trees[3:]]


@pytest.mark.parametrize("value", [float("nan"), -float("inf")])
@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("score", "talk-2 branch 1: the score is {value}"),
        ("logp_roll", "talk-2 branch 1: the sampler's log-probability is {value}"),
        ("entropy", "talk-2 branch 1: the sampler's entropy is {value}"),
        ("weight", "the loss is not finite in talk-"),
    ],
)
def test_a_step_with_a_number_that_is_not_finite_is_refused_and_changes_no_bit(
    one, what, named, value
):
    trees, before = one.trees[1.0], snapshot(one.policy)
    learner = one.learner("grpo,epo")
    take(
        learner, pack(trees), learner.control.init()
    )  # so that the optimizer has something to lose
    if what == "weight":
        with torch.no_grad():
            next(iter(learner.parameters.values())).view(-1)[0] = value
    weights, version = snapshot(one.policy), one.policy.version
    moments = {
        p: {k: v.clone() for k, v in parts.items()} for p, parts in learner.optimizer.state.items()
    }
    bad = pack(trees if what == "weight" else spoiled(trees, what, value))
    found = take(learner, bad, learner.control.init())
    assert found.refused.startswith(named.format(value=value)) and one.policy.version == version
    for name, weight in snapshot(one.policy).items():
        assert torch.equal(weight.view(torch.int32), weights[name].view(torch.int32))
    for parameter, parts in learner.optimizer.state.items():
        assert all(torch.equal(value, moments[parameter][key]) for key, value in parts.items())
    restore(one.policy, {**weights, **before})
    assert (
        take(learner, pack(trees), learner.control.init()).refused == ""
    )  # the next step is taken
    restore(one.policy, before)


def test_a_coefficient_of_a_method_that_is_not_finite_is_named(one):
    def shape(terms: Any, batch: Any, now: Any, state: Any) -> Any:
        return replace(terms, weight=terms.weight / 0.0)

    before = snapshot(one.policy)
    learner = Learner(
        one.policy, chain(*parse_methods("grpo"), Control(name="wild", shape=shape)), lr=1e-3
    )
    found = take(learner, pack(one.trees[1.0]), learner.control.init())
    assert found.refused.endswith(": the weight is inf")
    assert all(torch.equal(weight, before[name]) for name, weight in snapshot(one.policy).items())


def poisoned(one: Setting, where: str, value: float, path: int) -> tuple[Learner, Packed]:
    """A learner, one path of whose batch has a penalty that is, or whose gradient is, not finite."""
    packed = pack(one.trees[1.0])
    token = int(packed.batch.token[packed.batch.path == path][0])

    def penalty(current: Any, batch: Any, terms: Any) -> Tensor:
        zero = current.logp - current.logp.detach()
        which = (batch.token == token).nonzero()[:, 0]
        bad = zero[which].sqrt() if where == "gradient" else zero[which] + value
        return zero.index_put((which,), bad)

    def shape(terms: Any, batch: Any, now: Any, state: Any) -> Any:
        return replace(terms, penalties=(Penalty("wild", torch.ones_like(terms.scale), penalty),))

    return Learner(
        one.policy, chain(*parse_methods("grpo"), Control(name="wild", shape=shape)), lr=1e-3
    ), packed


@pytest.mark.parametrize(
    "path", [0, *(pytest.param(path, marks=pytest.mark.slow) for path in (7, 15))]
)
@pytest.mark.parametrize(
    ("where", "value"), [("loss", float("nan")), ("loss", float("inf")), ("gradient", 0.0)]
)
def test_the_path_that_makes_loss_or_gradient_infinite_is_named_whatever_it_is_batched_with(
    one, where, value, path
):
    learner, packed = poisoned(one, where, value, path)
    before, version = snapshot(one.policy), one.policy.version
    found = take(learner, packed, learner.control.init())
    assert found.refused == f"the {where} is not finite in {packed.names[path]}"
    assert (
        found.key
        == packed.keys[path]
        == (0, 0, int(packed.names[path][5]), int(packed.names[path][-1]))
    )
    assert one.policy.version == version and not learner.optimizer.state
    assert all(torch.equal(weight, before[name]) for name, weight in snapshot(one.policy).items())


@pytest.mark.parametrize(
    "what", ["clip_low", "clip_high", "scale", "kl_coef", "entropy_coef", "advantage"]
)
def test_one_number_of_the_terms_that_is_not_finite_is_named(one, what):
    packed = pack(one.trees[1.0])
    slot = int((packed.batch.path == 5).nonzero()[-1])

    def shape(terms: Any, batch: Any, now: Any, state: Any) -> Any:
        column = getattr(terms, what).clone()
        column[slot] = -float("inf")
        return replace(terms, **{what: column})

    learner = Learner(
        one.policy, chain(*parse_methods("grpo"), Control(name="wild", shape=shape)), lr=1e-3
    )
    found = take(learner, packed, learner.control.init())
    assert found.refused.startswith(f"{packed.names[5]}: the ") and found.refused.endswith(
        " is -inf"
    )
    assert found.key == packed.keys[5]


def test_bounds_that_hold_nothing_are_no_fault(one):
    def shape(terms: Any, batch: Any, now: Any, state: Any) -> Any:
        return replace(terms, clip_low=terms.clip_low / 0.0, clip_high=terms.clip_high / 0.0)

    learner = Learner(
        one.policy, chain(*parse_methods("grpo"), Control(name="wide", shape=shape)), lr=1e-3
    )
    assert learner.propose(pack(one.trees[1.0]), learner.control.init()).refused == ""


@pytest.mark.parametrize("share", [float("nan"), float("inf"), -float("inf"), -0.1, 1e30])
def test_a_learning_rate_out_of_range_is_refused(one, share):
    packed, before = pack(one.trees[1.0]), snapshot(one.policy)
    learner = one.learner()
    found = take(learner, packed, learner.control.init(), share)
    assert found.refused == f"the learning rate is {1e-3 * share}" and found.key == ()
    assert all(torch.equal(weight, before[name]) for name, weight in snapshot(one.policy).items())
    assert learner.propose(packed, learner.control.init()).refused == ""


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("name", ["lr", "clip_norm"])
def test_a_learner_whose_steps_could_be_infinite_is_refused(one, name, value):
    with pytest.raises(
        ValueError, match=re.escape(f"{name} is {value}; it must be above 0 and at most 1e+15")
    ):
        one.learner(**{name: value})


def test_a_proposal_changes_nothing_until_it_is_applied(one):
    packed, before, version = pack(one.trees[1.0]), snapshot(one.policy), one.policy.version
    learner = one.learner("grpo,epo")
    proposed = learner.propose(packed, learner.control.init())
    assert one.policy.version == version and not learner.optimizer.state and proposed.grad_norm > 0
    assert all(torch.equal(weight, before[name]) for name, weight in snapshot(one.policy).items())
    learner.apply(proposed)
    stepped = snapshot(one.policy)
    assert one.policy.version == version + 1 and len(learner.optimizer.state) == len(
        learner.parameters
    )
    learner.apply(replace(proposed, refused="for a test"))
    assert one.policy.version == version + 1
    assert all(torch.equal(weight, stepped[name]) for name, weight in snapshot(one.policy).items())
    restore(one.policy, before)


def test_paths_that_failed_take_no_part(one):
    trees = one.trees[1.0]
    lost = replace(trees[0].leaves[0], outcome=Outcome.INFRA_ERROR, score=float("nan"))
    failed = [replace(trees[0], leaves=[lost, *trees[0].leaves[1:]]), *trees[1:]]
    without = [replace(trees[0], leaves=trees[0].leaves[1:]), *trees[1:]]
    one_way, gradient = update(one.learner(), pack(failed))
    other_way, other = update(one.learner(), pack(without))
    assert one_way == other_way and torch.equal(gradient, other)


# --- the reference, and going on


def test_the_reference_is_the_model_without_its_adapter(one):
    packed = pack(one.trees[0.7])
    found = one.learner("grpo:kl_coef=0.1", micro_tokens=300).prepare(packed).batch.logp_ref
    with torch.no_grad(), one.policy.reference():
        for path, (tokens, sampled) in enumerate(zip(packed.tokens, packed.sampled)):
            logp = (one.policy.model(input_ids=tokens[None]).logits[0, :-1] / 0.7).log_softmax(-1)
            logp = logp.gather(-1, tokens[1:, None])[:, 0][sampled[1:]]
            torch.testing.assert_close(found[packed.batch.path == path], logp, rtol=0, atol=1e-5)
    assert (found - packed.batch.logp_old).abs().max() > 0.1
    assert one.learner("grpo").prepare(packed) is packed  # not computed where nobody needs it


def test_a_saved_learner_goes_on_to_the_bit(one, qwen2, tmp_path):
    packed, before = pack(one.trees[1.0]), snapshot(one.policy)
    learner = one.learner("grpo,epo")
    take(learner, packed, learner.control.init())
    learner.save(tmp_path / "here")
    version = one.policy.version
    went_on = [take(learner, packed, learner.control.init()) for _ in range(2)]

    fresh = Setting(load_policy(qwen2, lora=SPEC, seed=5), {})
    other = fresh.learner("grpo,epo")
    other.load(tmp_path / "here", version)
    assert [take(other, packed, other.control.init()) for _ in range(2)] == went_on
    assert fresh.policy.version == version + 2 == one.policy.version
    for name, parameter in fresh.policy.trainable_parameters().items():
        assert torch.equal(parameter, learner.parameters[name])
    other.save(tmp_path / "there")
    learner.save(tmp_path / "here")
    for path in (tmp_path / "here").rglob("*.safetensors"):
        assert (
            path.read_bytes()
            == (tmp_path / "there" / path.relative_to(tmp_path / "here")).read_bytes()
        )
    assert json.loads((tmp_path / "here" / "adapter" / "adapter_config.json").read_text())["r"] == 4
    restore(one.policy, before)


def saved(one: Setting, folder: Path) -> Learner:
    """A learner that has taken a step and was saved; its policy goes back."""
    before, learner = snapshot(one.policy), one.learner()
    take(learner, pack(one.trees[1.0]), learner.control.init())
    learner.save(folder)
    restore(one.policy, before)
    return learner


def without(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key: value for key, value in tensors.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda found, name: without(found, name),
            "is missing, and the run needs torch.float32 [4, ",
        ),
        (
            lambda found, name: {**found, "x/step": torch.zeros(())},
            "x/step is torch.float32 [], and the run needs mis",
        ),
        (lambda found, name: {**found, name: found[name].double()}, "is torch.float64 [4, "),
        (
            lambda found, name: {**found, name: found[name].T.contiguous()},
            ", 4], and the run needs torch.float32 [4, ",
        ),
        (lambda found, name: {**found, name: found[name] / 0.0}, "has a value that is not finite"),
    ],
)
def test_moments_that_do_not_fit_to_the_last_name_are_refused(one, tmp_path, change, message):
    learner = saved(one, tmp_path)
    found = load_file(tmp_path / "optimizer.safetensors")
    assert len(found) == 3 * len(learner.parameters)
    name = next(name for name in found if name.endswith("lora_A.default.weight/exp_avg"))
    save_file(change(found, name), tmp_path / "optimizer.safetensors")
    with pytest.raises(CheckpointError, match=re.escape(message)):
        one.learner().load(tmp_path, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found, name: without(found, name), "1 LoRA matrices differ"),
        (
            lambda found, name: {**found, "x.lora_A.weight": found[name].clone()},
            "1 LoRA matrices differ",
        ),
        (lambda found, name: {**found, name: found[name].half()}, "1 LoRA matrices differ"),
        (lambda found, name: {**found, name: found[name] / 0.0}, "has a value that is not finite"),
    ],
)
def test_an_adapter_that_does_not_fit_to_the_last_name_is_refused(one, tmp_path, change, message):
    saved(one, tmp_path)
    before, path = snapshot(one.policy), tmp_path / "adapter" / "adapter_model.safetensors"
    found = load_file(path)
    save_file(change(found, next(iter(found))), path)
    with pytest.raises(ValueError, match=message):
        one.learner().load(tmp_path, 3)
    restore(one.policy, before)


@pytest.mark.parametrize("where", ["weight", "moment"])
def test_what_is_not_finite_is_not_saved(one, tmp_path, where):
    before, learner = snapshot(one.policy), one.learner()
    take(learner, pack(one.trees[1.0]), learner.control.init())
    name, parameter = next(iter(learner.parameters.items()))
    with torch.no_grad():
        (parameter if where == "weight" else learner.optimizer.state[parameter]["exp_avg_sq"]).view(
            -1
        )[3] = float("nan")
    with pytest.raises(
        CheckpointError, match=rf"^{name}.* has a value that is not finite, so no checkpoint"
    ):
        learner.save(tmp_path / "here")
    assert not (tmp_path / "here").exists()
    restore(one.policy, before)


def test_a_learner_that_has_taken_no_step_is_saved_too(one, tmp_path):
    packed, before = pack(one.trees[1.0]), snapshot(one.policy)
    one.learner().save(tmp_path)
    moved = []
    for learner in (one.learner(), one.learner()):
        if moved:
            learner.load(tmp_path, one.policy.version)
        take(learner, packed, learner.control.init())
        moved.append(snapshot(one.policy))
        restore(one.policy, before)
    assert all(torch.equal(moved[0][name], moved[1][name]) for name in before)
    assert any(not torch.equal(moved[0][name], before[name]) for name in before)


# --- what controls ask for beside log-probability and entropy


def asking(**needs: Any) -> Control:
    """A control that pulls what it asked for towards 0, and does nothing else."""
    name = next(iter(next(iter(needs.values()))))

    def shape(terms, batch, now, state):
        coef = torch.full_like(terms.advantage, 1 / batch.n_slots)
        penalty = Penalty(
            name,
            coef,
            lambda current, batch, terms: current.extras[name].flatten(1).square().sum(1),
        )
        return replace(terms, weight=torch.zeros_like(terms.weight), penalties=(penalty,))

    return Control(name="asking", needs=Needs(**needs), shape=shape)


def test_a_functional_sees_the_logits_and_has_a_gradient(setting):
    packed = pack(setting.trees[0.7])
    control = asking(
        functionals={"top": lambda logits, token, before: logits.softmax(-1).topk(2).values}
    )
    learner = Learner(setting.policy, control, lr=1e-3, micro_tokens=200)
    ready = learner.prepare(packed)
    found = ready.batch.extras["top"]
    assert found.shape == (packed.batch.n_slots, 2) and not found.requires_grad
    for path, (tokens, sampled) in enumerate(zip(packed.tokens, packed.sampled)):
        with torch.no_grad():
            logits = setting.policy.model(input_ids=tokens[None]).logits[0, :-1][sampled[1:]]
        torch.testing.assert_close(
            found[packed.batch.path == path], logits.softmax(-1).topk(2).values, rtol=0, atol=1e-5
        )
    assert learner.propose(ready, {}).grad_norm > 1e-3
    learner.optimizer.zero_grad()


@pytest.mark.slow
def test_a_module_learns_beside_the_policy_and_cannot_move_it(one, tmp_path):
    packed, before = pack(one.trees[1.0]), snapshot(one.policy)
    control = asking(modules={"value": lambda width: torch.nn.Linear(width, 1)})
    torch.manual_seed(1)
    learner = Learner(one.policy, control, lr=1e-2)
    torch.manual_seed(2)
    again = Learner(one.policy, control, lr=1e-2)
    assert {name for name in learner.parameters if name.startswith("modules.")} == {
        "modules.value.weight",
        "modules.value.bias",
    }
    for name in learner.modules.named():
        assert torch.equal(
            learner.parameters[name], again.parameters[name]
        )  # it depends on no global seed
    losses = [take(learner, packed, {}).loss for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]
    for name, value in snapshot(one.policy).items():
        assert torch.equal(value, before[name])
    learner.save(tmp_path)
    again.load(tmp_path, one.policy.version)
    assert take(again, packed, {}).loss == take(learner, packed, {}).loss
    (tmp_path / "modules.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"modules.value.bias is missing"):
        again.load(tmp_path, 0)


def test_a_name_cannot_mean_a_functional_and_a_module():
    with pytest.raises(
        ValueError, match="'x' is a functional of one control and a module of another"
    ):
        Needs(functionals={"x": lambda logits, token, before: logits}) | Needs(
            modules={"x": torch.nn.Identity}
        )


# --- trees whose paths share turns and parts of turns


def branching(tree: Tree, event: Event, key: tuple[int, ...]) -> list[Spawn]:
    """Two paths at first, then one more behind every answer and one inside of the turn before it."""
    if event.kind == "start":
        return [Spawn(0, n=2)]
    said = tree.turns[event.node].parent
    return [Spawn(event.node), Spawn(said, token=2)] if event.kind == "turn" else []


@pytest.fixture(scope="module")
def trees(setting: Setting) -> list[Tree]:
    """Trees that branch behind answers and inside of turns; one path twice, a tree of one path, one of a prompt."""
    folder, policy = setting.policy.folder, setting.policy
    engine = TorchEngine(policy)
    actor = Actor(engine, Chat.from_folder(folder), policy.end_ids)
    options = {"key": (0, 1), "sampling": Sampling(temperature=0.7, max_tokens=5)}
    grown = collect(actor, Talk(), (1, 3), group=7, plan=branching, **options)
    single = collect(actor, Talk(), (2,), group=1, **options)
    engine.close()
    again = replace(grown[0].leaves[0], branch=7, score=-1.0)
    prompt = replace(
        single[0], turns=single[0].turns[:1], leaves=[Leaf(0, 0, Outcome.TRUNCATED, "context", 0.0)]
    )
    return [replace(grown[0], leaves=[*grown[0].leaves, again]), prompt, grown[1], *single]


def mixed(extras: bool = True) -> Control:
    """Advantages of both signs, tight bounds, a reference, the entropy's gradient and that of a functional."""

    def shape(terms: Any, batch: Any, now: Any, state: Any) -> Any:
        sign = torch.where(batch.path % 2 == 0, 1.0, -1.0) * (1 + batch.turn)
        coef = torch.full_like(terms.advantage, 0.3 / batch.n_slots)
        penalty = Penalty(
            "top", coef, lambda current, batch, terms: current.extras["top"].square().sum(1)
        )
        return replace(
            terms,
            advantage=sign.to(terms.advantage),
            clip_low=torch.full_like(coef, 0.1),
            clip_high=torch.full_like(coef, 0.1),
            kl_coef=torch.full_like(coef, 0.2),
            entropy_coef=0.1 * sign.to(coef),
            penalties=(penalty,) if extras else (),
        )

    functionals = (
        {"top": lambda logits, token, before: logits.softmax(-1).topk(2).values} if extras else {}
    )
    return Control(
        name="mixed",
        needs=Needs(logp_ref=True, entropy_grad=True, functionals=functionals),
        shape=shape,
    )


def moved(packed: Packed) -> Packed:
    """The batch as if its policy had been another one: ratios inside and outside of the bounds, also of one token."""
    off = torch.randn(packed.batch.n_slots, generator=torch.Generator().manual_seed(3)) * 0.2
    return replace(
        packed,
        batch=replace(packed.batch, logp_old=packed.batch.logp_old + off[packed.batch.token]),
    )


@contextmanager
def in_float64(policy: Policy) -> Iterator[None]:
    """Inside, weights and activations are float64, but for what models and the head's softmax always do in float32."""
    policy.model.double()
    try:
        yield
    finally:
        policy.model.float()


def flat(policy: Policy, packed: Packed) -> tuple[float, Tensor, dict[str, Tensor]]:
    """Loss, gradient and what slots hold from the equations in float64, every path alone in the plain model."""
    parameters, reached = list(policy.trainable_parameters().values()), []
    total, count = torch.zeros((), dtype=torch.float64), packed.batch.n_slots
    for path, (tokens, sampled) in enumerate(zip(packed.tokens, packed.sampled)):
        if not sampled.any():
            continue
        logits = policy.model(input_ids=tokens[None]).logits[0, :-1][sampled[1:]].double()
        with torch.no_grad(), policy.reference():
            ref = policy.model(input_ids=tokens[None]).logits[0, :-1][sampled[1:]].double()
        ids, mine = tokens[1:][sampled[1:], None], packed.batch.path == path
        heat = packed.temperature[mine].double()[:, None]
        logp, logp_ref = ((x / heat).log_softmax(-1).gather(-1, ids)[:, 0] for x in (logits, ref))
        entropy, top = (
            torch.distributions.Categorical(logits=logits).entropy(),
            logits.softmax(-1).topk(2).values,
        )
        sign = (1.0 if path % 2 == 0 else -1.0) * (1 + packed.batch.turn[mine])
        ratio = (logp - packed.batch.logp_old[mine].double()).exp()
        surrogate = torch.minimum(ratio * sign, ratio.clamp(0.9, 1.1) * sign)
        kl = (logp_ref - logp).exp() - (logp_ref - logp) - 1
        value = -surrogate + 0.2 * kl - 0.1 * sign * entropy + 0.3 * top.square().sum(1)
        total = total + value.sum() / count
        reached.append(
            {
                "logp": logp.detach(),
                "entropy": entropy.detach(),
                "top": top.detach(),
                "ratio": ratio.detach(),
            }
        )
    gradient = torch.cat([part.flatten() for part in torch.autograd.grad(total, parameters)])
    return (
        float(total.detach()),
        gradient,
        {name: torch.cat([part[name] for part in reached]) for name in reached[0]},
    )


def test_a_tree_learns_what_its_paths_teach_as_rows_of_their_own(setting, trees):
    packed = moved(pack(trees))
    with in_float64(setting.policy):
        loss, gradient, slots = flat(setting.policy, packed)
        outside = (slots["ratio"] - 1).abs() > 0.1
        assert outside.any() and not outside.all()
        for micro_tokens in (
            (1, 150, 100_000) if setting.policy.folder != TINY else (150,)
        ):  # the larger model once
            learner = Learner(
                setting.policy, mixed(), lr=1e-3, clip_norm=1e9, micro_tokens=micro_tokens
            )
            now = learner.now(packed)
            for name, values in (
                ("logp", now.logp),
                ("entropy", now.entropy),
                ("top", now.extras["top"]),
            ):
                torch.testing.assert_close(values.double(), slots[name], rtol=0, atol=1e-5)
            found, mine = update(learner, learner.prepare(packed))
            assert found.refused == "" and found.loss == pytest.approx(loss, abs=1e-5)
            sizes = [parameter.numel() for parameter in learner.parameters.values()]
            for name, one, other in zip(
                learner.parameters, mine.split(sizes), gradient.split(sizes), strict=True
            ):
                assert apart(one, other) < 1e-5, name


def test_the_trees_share_what_they_should(trees):
    packed = pack(trees)
    assert packed.batch.n_paths == 17 and any(turn.copied for tree in trees for turn in tree.turns)
    assert len(packed.layout(range(17)).tokens) < 0.5 * sum(len(tokens) for tokens in packed.tokens)
    assert (
        torch.equal(packed.shared[0], packed.shared[7])
        and len({int(name[0]) for name in packed.shared}) == 4
    )


@pytest.mark.parametrize("term", ["logp", "entropy"])
def test_the_gradient_through_a_shared_token_is_the_slope_of_the_loss(one, term):
    """Central differences along a random direction, with a loss of one term alone."""
    packed = pack(one.trees[0.7])
    weight = torch.randn(packed.batch.n_slots, generator=torch.Generator().manual_seed(4))
    learner = Learner(one.policy, Control(name="both", needs=Needs(entropy_grad=True)), lr=1e-3)
    paths, parameters = range(packed.batch.n_paths), list(learner.parameters.values())
    gradient = torch.autograd.grad(
        (getattr(learner.forward(packed, paths), term) * weight).sum(), parameters
    )
    rng, before = torch.Generator().manual_seed(5), snapshot(one.policy)
    direction = [
        part / part.norm() + 0.01 * torch.randn(part.shape, generator=rng) for part in gradient
    ]
    values = []
    with torch.no_grad():
        for step in (1e-3, -1e-3):
            for parameter, part in zip(parameters, direction):
                parameter.add_(part, alpha=step)
            values.append(
                float((getattr(learner.forward(packed, paths), term).double() * weight).sum())
            )
            restore(one.policy, before)
    slope = sum(float((part * along).sum()) for part, along in zip(gradient, direction))
    assert (values[0] - values[1]) / 2e-3 == pytest.approx(slope, rel=5e-3)


def test_a_control_that_needs_no_gradient_of_the_entropy_gets_none(one):
    current = one.learner("grpo").forward(pack(one.trees[1.0]), range(2))
    assert current.logp.requires_grad and not current.entropy.requires_grad


def test_only_different_drawn_tokens_go_through_the_model_and_its_head(setting, trees, monkeypatch):
    packed, stats, fed, headed = pack(trees), module.token_stats, [], []

    def counting(hidden: Tensor, *rest: Any) -> Any:
        headed.append(len(hidden))
        return stats(hidden, *rest)

    monkeypatch.setattr(module, "token_stats", counting)
    handle = setting.policy.base.model.register_forward_pre_hook(
        lambda module, arguments, options: fed.append(options["input_ids"].numel()),
        with_kwargs=True,
    )
    try:
        setting.learner().now(packed)
    finally:
        handle.remove()
    turns = [turn for tree in trees for turn in tree.turns]
    assert (
        headed
        == [len(packed.batch.token.unique())]
        == [sum(int(t.sampled[t.copied :].sum()) for t in turns)]
    )
    assert fed == [sum(len(turn.tokens) - turn.copied for turn in turns)]
    assert headed[0] < 0.8 * packed.batch.n_slots


def test_a_prompt_alone_among_micro_batches_has_no_slot_and_no_gradient(one, trees):
    packed = pack([trees[1], trees[2]])
    assert 0 not in packed.batch.path
    learner = one.learner("grpo,entropy-bonus", micro_tokens=1)
    assert len(learner.forward(packed, range(1)).logp) == 0
    assert len(learner.now(packed).logp) == packed.batch.n_slots
    assert learner.propose(packed, learner.control.init()).grad_norm > 0
