"""A turn ends where its template ends it, also where the files of the model name another token as the end."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from turngym.agents.chat.chat import Chat
from turngym.agents.cli.settings import SamplingOptions
from turngym.agents.engine import Sampling
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.evaluation import run as evaluate
from turngym.agents.models.resolve import find
from turngym.agents.policy import load_policy
from turngym.agents.warmup.pretrain import Demonstration
from turngym.tests.agents.engines.vllm.served import engine as vllm_engine

TURNS = (
    "{%% for m in messages %%}{{ '%s' + m['role'] + '%s' + m['content'] + '%s' }}{%% endfor %%}%s"
)
LLAMA = TURNS % (
    *("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"),
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
)
GEMMA = TURNS % (
    *("<start_of_turn>", "\n", "<end_of_turn>\n"),
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
)
PHI = TURNS % (
    "<|",
    "|>\n",
    "<|end|>\n",
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
)
CHATML = TURNS % (
    *("<|im_start|>", "\n", "<|im_end|>\n"),
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
)
BROKEN = CHATML.replace("<|im_end|>", "\n<|im_end|>")  # a line break in front of the end
EOS = TURNS % ("", ": ", " </s>", "{% if add_generation_prompt %}assistant: {% endif %}")
LLAMA_TOKENS = ("<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
PHI_TOKENS = ("<|endoftext|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class Model:
    """A model that only ever draws one token, and what its files say of how turns end."""

    template: str
    tokens: Sequence[str]  # control tokens
    draws: str
    config: str | None  # end token of config.json
    generation: Sequence[str] | None  # of generation_config.json
    tokenizer: str | None  # of tokenizer_config.json

    def save(self, folder: Path) -> Path:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(
            models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[])
        )
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(
            [AddedToken(text, special=True, normalized=False) for text in self.tokens]
        )
        folder.mkdir(parents=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        size = tokenizer.get_vocab_size()
        ids = {
            "bos_token_id": None,
            "eos_token_id": self.config and tokenizer.token_to_id(self.config),
        }
        shape = {
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
        }
        model = LlamaForCausalLM(
            LlamaConfig(vocab_size=size, max_position_embeddings=2048, **shape, **ids)
        )
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.fill_(1.0 if "norm" in name or "embed" in name else 0.0)
            model.lm_head.weight[tokenizer.token_to_id(self.draws)].fill_(10.0)
        ends = self.generation and [tokenizer.token_to_id(text) for text in self.generation]
        model.generation_config = GenerationConfig(eos_token_id=ends)
        model.save_pretrained(folder)
        named = {"eos_token": self.tokenizer} if self.tokenizer else {}
        (folder / "tokenizer_config.json").write_text(json.dumps(named))
        (folder / "chat_template.jinja").write_text(self.template)
        return folder


MODELS = {
    "llama, all agree": Model(
        LLAMA, LLAMA_TOKENS, "<|eot_id|>", "<|eot_id|>", ["<|eot_id|>"], "<|eot_id|>"
    ),
    "llama base": Model(
        LLAMA, LLAMA_TOKENS, "<|eot_id|>", "<|end_of_text|>", ["<|end_of_text|>"], "<|end_of_text|>"
    ),
    "llama base, no generation config": Model(
        LLAMA, LLAMA_TOKENS, "<|eot_id|>", "<|end_of_text|>", None, None
    ),
    "gemma base": Model(
        GEMMA,
        ("<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<end_of_turn>",
        "<eos>",
        ["<eos>"],
        "<eos>",
    ),
    "phi base": Model(
        PHI, PHI_TOKENS, "<|end|>", "<|endoftext|>", ["<|endoftext|>"], "<|endoftext|>"
    ),
    "qwen base": Model(
        CHATML, CHATML_TOKENS, "<|im_end|>", "<|endoftext|>", ["<|endoftext|>"], "<|endoftext|>"
    ),
    "a blank in front": Model(BROKEN, CHATML_TOKENS, "<|im_end|>", "<|endoftext|>", None, None),
    "the config's end": Model(
        LLAMA, LLAMA_TOKENS, "<|end_of_text|>", "<|end_of_text|>", ["<|eot_id|>"], None
    ),
    "the generation config's end": Model(
        LLAMA, LLAMA_TOKENS, "<|end_of_text|>", None, ["<|end_of_text|>"], None
    ),
    "the tokenizer's end": Model(
        LLAMA, LLAMA_TOKENS, "<|end_of_text|>", "<|eot_id|>", None, "<|end_of_text|>"
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def folder(request, tmp_path_factory) -> Path:
    return MODELS[request.param].save(tmp_path_factory.mktemp("ends") / "model")


def test_every_turn_of_an_evaluation_is_the_end_token_alone(folder, tmp_path):
    prepared = evaluate.prepare(
        "turngym/Math-v0",
        {},
        str(folder),
        episodes=2,
        sampling=SamplingOptions(max_tokens=8),
        out=tmp_path / "out",
    )
    report = evaluate.run(prepared)
    assert (report.cut, report.tokens, report.stops) == (0.0, 1.0, {"no_answer": 2})


def test_engines_end_a_turn_at_the_templates_token_and_at_the_configs(folder):
    policy, chat = load_policy(folder), Chat.from_folder(folder)
    assert chat.end_ids < policy.end_ids or chat.end_ids == policy.end_ids

    async def drawn() -> tuple[list[int], str]:
        with closing(TorchEngine(policy, slots=8)) as engine:
            prompt = chat.prompt([{"role": "user", "content": "Hello"}])
            turn = await engine.session().sample(prompt, Sampling(max_tokens=5), (0,))
            return turn.tokens.tolist(), turn.stop

    tokens, stop = asyncio.run(drawn())
    assert (len(tokens), stop) == (1, "end")
    asked = vllm_engine(policy, ["http://localhost:1"]).request([1], 5, Sampling(), (0,))
    assert json.loads(asked.body("m", "n"))["stop_token_ids"] == sorted(policy.end_ids)


def test_a_reply_does_not_end_the_turn_again(folder):
    chat = Chat.from_folder(folder)
    (end,) = chat.end_ids
    answer = [{"role": "user", "content": "more"}]
    whole = chat.reply(answer, None).tolist()
    assert whole[: len(chat.end)] == chat.end.tolist() and chat.end[-1] == end
    assert chat.reply(answer, end).tolist() == whole[len(chat.end) :]
    assert chat.reply(answer, 5).tolist() == whole


def test_a_demonstration_teaches_the_templates_end(folder):
    chat = Chat.from_folder(folder)
    ask = {"role": "user", "content": "Hello"}
    example = Demonstration([ask], [], ["one", "two"], [[ask]]).example(chat)
    said = [
        *chat.tokenizer.encode("one").ids,
        *chat.end,
        *chat.tokenizer.encode("two").ids,
        *chat.end,
    ]
    assert example.tokens[example.assistant].tolist() == said
    (end,) = chat.end_ids
    path = [*chat.prompt([ask]), *said[: 3 + len(chat.end)], *chat.reply([ask], end)]
    assert example.tokens[: len(path)].tolist() == path


def test_an_end_behind_a_blank_is_the_end(tmp_path):
    """As in Llama 2's template: the policy draws ` </s>`, or the end alone, and no second one follows."""
    model = Model(EOS, ("<s>", "</s>", "<pad>"), "</s>", "<pad>", ["<pad>"], "</s>")
    chat = Chat.from_folder(model.save(tmp_path / "model"))
    (end,) = chat.end_ids
    assert chat.tokenizer.decode(chat.end.tolist(), skip_special_tokens=False) == " </s>"
    reply = chat.reply([{"role": "user", "content": "b"}], end)
    assert (
        chat.tokenizer.decode(reply.tolist(), skip_special_tokens=False)
        == "user: b </s>assistant: "
    )
    assert chat.text(np.array([5, end], np.int32), chat.end_ids) == chat.tokenizer.decode([5])


def test_a_template_that_ends_turns_with_words_has_no_end_to_teach(tmp_path):
    words = EOS.replace(" </s>", " STOP <pad>")
    folder = Model(words, ("</s>", "<pad>"), "</s>", "</s>", ["</s>"], "</s>").save(
        tmp_path / "model"
    )
    chat = Chat.from_folder(folder)
    assert chat.end_ids == frozenset() and not len(chat.end)
    ask = {"role": "user", "content": "Hello"}
    with pytest.raises(
        ValueError, match="no token to teach as the end of a turn; write a control token"
    ):
        Demonstration([ask], [], ["one"], []).example(chat)
    assert load_policy(folder).end_ids == {chat.tokenizer.token_to_id("</s>")}


def test_a_template_in_place_of_the_folders_own_says_where_turns_end(tmp_path):
    folder = MODELS["llama base"].save(tmp_path / "model")
    (tmp_path / "mine.jinja").write_text(LLAMA.replace("eot_id", "end_header_id"))
    source = find(folder, template=str(tmp_path / "mine.jinja"))
    names = {"<|end_header_id|>", "<|end_of_text|>"}
    policy = load_policy(source)
    assert {policy.tokenizer.id_to_token(index) for index in policy.end_ids} == names


def test_a_folder_without_a_template_has_the_ends_of_its_files(tmp_path):
    folder = MODELS["llama base"].save(tmp_path / "model")
    (folder / "chat_template.jinja").unlink()
    policy = load_policy(folder)
    assert {policy.tokenizer.id_to_token(index) for index in policy.end_ids} == {"<|end_of_text|>"}
