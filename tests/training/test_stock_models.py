"""Small random models with the architectures, templates and control tokens of stock ones train and are evaluated."""

import json
import shutil
import tomllib
from contextlib import closing

import pytest
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from turngym.agents.cli.settings import SamplingOptions
from turngym.agents.evaluation import run as evaluate
from turngym.agents.journal.trees import read_trees
from turngym.agents.models.resolve import TINY
from turngym.training.runs.config import TrainConfig, from_run
from turngym.training.runs.run import execute, prepare

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
SMOL = (  # ChatML with a system prompt of its own, which shows no tools
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are SmolLM.<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SIZES = {
    "vocab_size": 640,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
OPTIONS = {
    "turngym/MathPython-v0": ("max_turns=2",),
    "turngym/Search-v0": ("size=tiny", "k=1", "max_turns=2"),
}


def qwen():
    heads = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
    }
    return Qwen2ForCausalLM(Qwen2Config(**SIZES, **heads))


def smol():
    heads = {
        "hidden_size": 72,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 144,
    }
    return LlamaForCausalLM(LlamaConfig(**SIZES, **heads))


@pytest.fixture(scope="module")
def folders(tmp_path_factory, chat_templates):
    """A model folder by name; the tokenizer is that of the tiny policy, which has ChatML's control tokens."""
    found = {}
    for name, make, template in (
        ("qwen", qwen, chat_templates["qwen2_5.jinja"]),
        ("smol", smol, SMOL),
    ):
        found[name] = folder = tmp_path_factory.mktemp(name)
        torch.manual_seed(0)
        make().save_pretrained(folder)
        shutil.copy(TINY / "tokenizer.json", folder)
        settings = {
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "chat_template": template,
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return found


@pytest.mark.parametrize("env", OPTIONS)
@pytest.mark.parametrize("name", ["qwen", "smol"])
def test_a_stock_model_trains_and_is_evaluated_without_an_option_about_templates(
    folders, tmp_path, name, env
):
    config = TrainConfig(
        env=env, policy=str(folders[name]), out=str(tmp_path / "run"), prompts=2, group=2
    )
    config = config.changed(option=OPTIONS[env], max_tokens=12, steps=2, eval_every=2, eval_tasks=2)
    with closing(prepare(config)) as prepared:
        assert [record.step for record in execute(prepared)][-1] == 2
    record = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["record"]
    taught = {"format": "tags"} if (name, env) == ("smol", "turngym/MathPython-v0") else {}
    assert record["fitted"] == {"system": True, **taught}
    assert record["chat_template"]["family"] == ("Qwen2.5" if name == "qwen" else "")

    options = {"split": "test", **dict(option.split("=") for option in OPTIONS[env])}
    options |= {key: int(value) for key, value in options.items() if value.isdecimal()}
    for policy in (folders[name], tmp_path / "run"):
        out = tmp_path / f"eval-{policy.name}"
        sampling = SamplingOptions(max_tokens=12)
        evaluate.run(
            evaluate.prepare(env, options, str(policy), episodes=2, sampling=sampling, out=out)
        )
        assert json.loads((out / "eval.json").read_text())["options"] == {
            **options,
            "system": True,
            **taught,
        }
        tokens = next(iter(read_trees(out / "trees.jsonl"))).turns[0].tokens
        opening = Tokenizer.from_file(str(TINY / "tokenizer.json")).decode(tokens.tolist())
        assert ("python" if "Python" in env else "search") in opening and "make no call" in opening


def test_a_template_by_file_stays_with_the_run(folders, tmp_path):
    """Its evaluations take the copy in the run folder; the file itself is named again by the command that resumes."""
    mine = tmp_path / "mine.jinja"
    mine.write_text(SMOL.replace("You are SmolLM.", "You are another."))
    out = tmp_path / "run"
    config = TrainConfig(
        "turngym/Math-v0", policy=str(folders["smol"]), chat_template=str(mine), out=str(out)
    )
    config = config.changed(prompts=2, group=2, max_tokens=8, steps=1, eval_every=1, eval_tasks=2)
    with closing(prepare(config)) as prepared:
        assert len(list(execute(prepared))) > 0
    assert (out / "chat_template.jinja").read_text() == mine.read_text()
    assert (
        evaluate.prepare(config.env, {}, str(out), episodes=2).source.template
        == out / "chat_template.jinja"
    )
    with pytest.raises(
        ValueError,
        match=r"asks for 'chat_template=.*add --chat-template .*mine.jinja to the command",
    ):
        from_run(out)
    mine.unlink()
    again = from_run(out, [f"chat_template={mine}"]).changed(steps=2, resume=True)
    with closing(prepare(again)) as prepared:
        assert "You are another." in prepared.chat.template.source
