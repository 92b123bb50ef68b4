import json
import shutil

import pytest

from turngym.agents.chat.template import Template
from turngym.agents.evaluation import run as evaluate
from turngym.agents.models.folder import template_digest
from turngym.agents.models.resolve import OWN, TINY, Source, find, fitting, suited
from turngym.agents.warmup.supervised import TEMPLATE
from turngym.envs.registry import defaults_of, make
from turngym.training.runs.config import TrainConfig, read_recipe, to_toml
from turngym.training.runs.run import prepare

MATH, PYTHON, SEARCH = "turngym/Math-v0", "turngym/MathPython-v0", "turngym/Search-v0"
SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>"}
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FORMATS = {  # of calls in MathPython, whose own is hermes
    "qwen2_5.jinja": None,
    "qwen3.jinja": None,
    "qwen3_training.jinja": None,
    "llama3.jinja": "tags",
    "llama3_1.jinja": "llama-json",
    "llama3_2.jinja": "llama-json",
    "gemma.jinja": "tags",
    "gemma3.jinja": "tags",
    "deepseekv3.jinja": "tags",
    "hermes chatml.j2": "tags",
    "gptoss.jinja": None,  # which carries none
}


@pytest.mark.parametrize("name", FORMATS)
def test_calls_are_written_as_the_template_writes_them_or_taught(chat_templates, name):
    template = Template(chat_templates[name], SPECIAL, name)
    chosen = {"format": FORMATS[name]} if FORMATS[name] else {}
    assert fitting(PYTHON, {}, template) == {"system": True, **chosen}
    assert fitting(PYTHON, {"format": "pythonic", "system": "Go."}, template) == {}
    assert fitting(MATH, {}, template) == fitting(SEARCH, {}, template) == {"system": True}
    assert fitting("turngym/Household-v0", {}, template) == {}  # whose prompt says all


def test_the_own_policies_and_servers_models_are_told_apart():
    assert template_digest(TEMPLATE) == OWN
    assert find("tiny").is_own and suited(PYTHON, {}, find("tiny")) == {}
    assert (
        fitting(PYTHON, {}, None) == {"system": True}
        and fitting(PYTHON, {"system": False}, None) == {}
    )


@pytest.mark.parametrize("env", [MATH, PYTHON, SEARCH])
def test_a_system_prompt_is_short_or_full_or_ones_own(env):
    options = {"size": "tiny"} if env == SEARCH else {}
    said = {}
    for system in (False, True, "Speak.", ""):
        asked = make(env, system=system, **options)
        _, info = asked.reset(options={"task": 0})
        said[system] = [
            message["content"] for message in info["messages"] if message["role"] == "system"
        ]
        asked.close()
    assert defaults_of(env)["system"] is False
    short, full = said[False][0], said[True][0]
    answer = "<answer>" if env == SEARCH else "\\boxed{}"
    assert answer in short and answer in full and ("make no call" in full) == (env != MATH)
    assert said["Speak."][0].startswith("Speak.")
    assert said[""] == (
        [] if env != SEARCH else [full.partition("\n")[2]]
    )  # the format teaches its calls alone
    with pytest.raises(ValueError, match="system is 3; it must be true, false or a text"):
        make(env, system=3, **options)


def folder_with(tmp_path, source):
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (*TINY.glob("tokenizer*.json"), TINY / "config.json", TINY / "model.safetensors"):
        shutil.copy(path, folder)
    (folder / "chat_template.jinja").write_text(source)
    assert Source(folder).is_own == (source == TEMPLATE)
    return folder


def test_what_was_chosen_is_what_is_played_and_recorded(tmp_path):
    folder = folder_with(tmp_path, CHATML)
    prepared = evaluate.prepare(PYTHON, {"split": "test"}, str(folder), episodes=2)
    assert prepared.env.spec.kwargs == {"split": "test", "system": True, "format": "tags"}
    assert evaluate.prepare(PYTHON, {}, "expert", episodes=2).env.spec.kwargs == {}
    run = prepare(TrainConfig(policy=str(folder), out=str(tmp_path / "run")))
    assert run.fitted == {"system": True, "format": "tags"}
    assert run.env.spec.kwargs["format"] == run.valid.env.spec.kwargs["format"] == "tags"
    assert prepare(TrainConfig(out=str(tmp_path / "own"))).fitted == {}
    again = folder_with(tmp_path / "run", TEMPLATE)  # as saved by transformers
    assert evaluate.prepare(PYTHON, {}, str(again), episodes=2).env.spec.kwargs == {}
    mine = evaluate.prepare(
        PYTHON, {}, "tiny", episodes=2, chat_template=str(folder / "chat_template.jinja")
    )
    assert mine.env.spec.kwargs == {"system": True, "format": "tags"}


def test_a_file_of_a_template_takes_the_place_of_the_policys(tmp_path):
    folder = folder_with(tmp_path, "{{ messages | length }}" + CHATML)  # which rewrites
    mine = tmp_path / "mine.jinja"
    mine.write_text(CHATML)
    with pytest.raises(ValueError, match="or name its file with --chat-template"):
        evaluate.prepare(MATH, {}, str(folder), episodes=2)
    prepared = evaluate.prepare(MATH, {}, str(folder), episodes=2, chat_template=str(mine))
    assert prepared.source == Source(folder, template=mine)
    run = prepare(
        TrainConfig(MATH, policy=str(folder), chat_template=str(mine), out=str(tmp_path / "run"))
    )
    assert run.chat.template.source == CHATML
    with pytest.raises(
        FileNotFoundError,
        match=r"chat_template is '.*none', and there is no such file; name a jinja",
    ):
        find(folder, template=str(tmp_path / "none"))


def test_a_recipe_chooses_no_file_of_a_template(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f"chat_template = {json.dumps('/etc/passwd')}\n")
    with pytest.raises(
        ValueError, match=r"a program in a file .* add --chat-template /etc/passwd to the command"
    ):
        read_recipe(str(recipe))
    assert (
        read_recipe(str(recipe), allowed=["chat_template=/etc/passwd"]).chat_template
        == "/etc/passwd"
    )


def test_a_resumed_run_keeps_what_it_was_begun_with(tmp_path):
    """A folder that is resumed chooses the prompt and the format, and nothing else."""
    folder, out = folder_with(tmp_path, CHATML), tmp_path / "run"
    config = TrainConfig(policy=str(folder), out=str(out), resume=True).changed(
        option=("format=tags",), max_tokens=32
    )
    out.mkdir()
    for fitted, found in (
        ({"system": True, "level": "rlimits-only"}, {"system": True}),
        ({}, {}),
        (3, {}),
    ):
        (out / "config.toml").write_text(to_toml(config, {"fitted": fitted}))
        run = prepare(config)
        assert run.fitted == found and run.env.spec.kwargs.get("level") is None
