"""The embedded engine draws the tokens of transformers' `generate`, stock and with an adapter."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from turngym.agents.engines.torch import TorchEngine
from turngym.agents.policy import Policy
from turngym.tests.support.greedy import Prompt, drawn, generated, move, prompts

QUESTIONS, TOKENS = 100, 12


async def embedded(policy: Policy, given: list[Prompt]) -> list[list[int]]:
    with closing(TorchEngine(policy, threads=1)) as engine:
        return await drawn(engine, given, TOKENS)


@pytest.mark.filterwarnings(
    "ignore:Model has .tie_word_embeddings=True"
)  # the update is of the head alone
@pytest.mark.parametrize("adapted", [False, True], ids=["stock", "adapted"])
def test_greedy_tokens_are_those_of_generate(policy: Policy, adapted: bool, tmp_path: Path) -> None:
    given = prompts(policy, QUESTIONS)
    model = AutoModelForCausalLM.from_pretrained(policy.folder, dtype=torch.float32)
    stock = generated(model, policy.end_ids, given[:8], TOKENS)
    if adapted:
        move(policy, 0.02)
        policy.save_adapter(tmp_path)
        model = PeftModel.from_pretrained(model, tmp_path)
    found = asyncio.run(embedded(policy, given))
    assert found == generated(model, policy.end_ids, given, TOKENS)
    assert (found[:8] != stock) == adapted
