"""The own term of a method is |g - g_ref| / |g|, and measuring it changes nothing of the run."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from turngym.agents.chat.chat import Chat
from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engine import Sampling
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import load_policy
from turngym.agents.rollout.collect import collect
from turngym.agents.rollout.path import Actor
from turngym.envs.registry import make
from turngym.training.comparison.effect import read_effect
from turngym.training.comparison.own_term import SHARE, OwnTerm
from turngym.training.control.chain import chain
from turngym.training.data.batch import At
from turngym.training.data.packing import pack
from turngym.training.loop.learner import Learner, moving
from turngym.training.loss.objective import objective
from turngym.training.methods import parse_methods


@pytest.fixture(scope="module")
def rollout():
    """A policy whose adapter does something, and what it did in four tasks."""
    torch.set_num_threads(1)
    policy = load_policy(TINY, lora=LoraOptions(rank=4, alpha=8))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.trainable_parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
    engine = TorchEngine(policy)
    env = make("turngym/MathPython-v0", difficulty=1)
    actor = Actor(engine, Chat.from_folder(TINY), policy.end_ids)
    trees = collect(actor, env, range(4), group=8, key=(0, 0), sampling=Sampling(max_tokens=48))
    engine.close()
    env.close()
    return policy, pack(trees)


def learner_of(policy, method):
    return Learner(policy, chain(*parse_methods(method)), lr=1e-3)


def measured(policy, packed, method, reference, folder, step=1, update=0):
    learner = learner_of(policy, method)
    packed = replace(packed, batch=replace(packed.batch, at=At(0, step - 1, 10, update)))
    loop = SimpleNamespace(learner=learner, folder=folder)
    own_term = OwnTerm(loop, chain(*parse_methods(reference)))
    assert own_term.measurable
    own_term.before_update(
        step, learner.prepare(packed), learner.control.init(), None, range(packed.batch.n_paths)
    )
    return read_effect(folder).own_term


def gradient(learner, packed, terms, paths):
    """The gradient of some paths, the plain way: backward into the parameters."""
    learner.optimizer.zero_grad(set_to_none=True)
    current = learner.forward(packed, paths)
    span = packed.batch.span(paths)
    objective(
        current, packed.batch.slice(paths), terms.slice(span), packed.batch.n_slots
    ).backward()
    found = torch.cat(
        [p.grad.flatten().double() for p in learner.parameters.values() if p.grad is not None]
    )
    learner.optimizer.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize(
    "method", ["grpo,entropy-bonus:coef=0.05", "grpo,epo:coef=0.2", "grpo,empg"]
)
def test_it_is_the_norm_of_the_difference_of_two_gradients(rollout, tmp_path, method):
    policy, packed = rollout
    found = measured(policy, packed, method, "grpo", tmp_path)
    learner = learner_of(policy, method)
    reference = chain(*parse_methods("grpo"))
    part, terms = learner.terms(learner.control, learner.prepare(packed), learner.control.init())
    _, plain = learner.terms(reference, packed, reference.init())
    moves = moving(terms, part.batch) | moving(plain, part.batch)
    tokens = sum(map(len, part.shared))
    few = next(paths for paths in part.micro_batches(tokens // SHARE, moves) if moves[paths].any())
    g, g_ref = gradient(learner, part, terms, few), gradient(learner, part, plain, few)
    wanted = float((g - g_ref).norm() / g.norm())
    assert found == {1: pytest.approx(wanted, rel=1e-4)} and wanted > 1e-4


def test_a_method_equal_to_the_reference_has_none_and_a_larger_coefficient_more(rollout, tmp_path):
    policy, packed = rollout
    shares = []
    for place, coef in enumerate(("0", "0.001", "0.01", "0.1")):
        folder = tmp_path / str(place)
        folder.mkdir()
        shares += measured(
            policy, packed, f"grpo,entropy-bonus:coef={coef}", "grpo", folder
        ).values()
    assert shares[0] == 0 and shares == sorted(shares) and shares[1] > 0


def test_it_is_measured_in_steps_that_are_powers_of_two(rollout, tmp_path):
    policy, packed = rollout
    for step in range(1, 10):
        found = measured(policy, packed, "grpo,entropy-bonus:coef=0.1", "grpo", tmp_path, step)
    assert [*found] == [1, 2, 4, 8]


def test_of_several_optimizer_steps_the_largest_counts_and_a_step_taken_again_begins_anew(
    rollout, tmp_path
):
    policy, packed = rollout
    small, large = "grpo,entropy-bonus:coef=0.001", "grpo,entropy-bonus:coef=0.1"
    (first,) = measured(policy, packed, large, "grpo", tmp_path).values()
    (second,) = measured(policy, packed, small, "grpo", tmp_path, update=1).values()
    (again,) = measured(policy, packed, small, "grpo", tmp_path).values()
    assert second == first > again > 0


def test_a_reference_that_needs_more_than_the_run_computes_is_not_measured(rollout, tmp_path):
    policy, _ = rollout
    loop = SimpleNamespace(learner=learner_of(policy, "grpo"), folder=tmp_path)
    assert OwnTerm(loop, chain(*parse_methods("grpo"))).measurable
    assert not OwnTerm(loop, chain(*parse_methods("grpo:kl_coef=0.01"))).measurable


def test_gradients_and_weights_are_left_alone(rollout, tmp_path):
    policy, packed = rollout
    learner = learner_of(policy, "grpo,entropy-bonus:coef=0.1")
    loop = SimpleNamespace(learner=learner, folder=tmp_path)
    own_term = OwnTerm(loop, chain(*parse_methods("grpo")))
    for parameter in learner.parameters.values():
        parameter.grad = torch.full_like(parameter, 0.5)
    before, random = learner.digest(), torch.get_rng_state()
    own_term.before_update(
        1, learner.prepare(packed), learner.control.init(), None, range(packed.batch.n_paths)
    )
    assert read_effect(tmp_path).own_term[1] > 0
    assert learner.digest() == before and torch.equal(torch.get_rng_state(), random)
    assert all(bool((parameter.grad == 0.5).all()) for parameter in learner.parameters.values())
