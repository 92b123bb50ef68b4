"""The script that makes tiny, run for a few steps, and what ships."""

import json
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tokenizers import Tokenizer

from turngym.agents.chat.chat import Chat
from turngym.agents.cli.settings import SIZES, SamplingOptions
from turngym.agents.evaluation import run as evaluate
from turngym.agents.models.resolve import TINY
from turngym.agents.warmup.supervised import TEMPLATE
from turngym.benchmarks.make_tiny import MIX, OPTIONS, Demo, demo, demos, encode, make, run
from turngym.envs.math import MathTasks, make_math_python
from turngym.envs.registry import make as make_env
from turngym.envs.tasks import Task
from turngym.tools import get_format

FORM = get_format("hermes")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A policy after 6 steps."""
    folder = tmp_path_factory.mktemp("made")
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        make(folder, replace(OPTIONS, episodes=96, steps=6, batch=16, threads=1))
    torch.set_num_threads(threads)
    return folder


@pytest.mark.slow
def test_what_is_made_speaks_in_mathpython(made):
    sampling = SamplingOptions(8)
    prepared = evaluate.prepare(
        "turngym/MathPython-v0", {}, str(made), episodes=2, sampling=sampling
    )
    report = evaluate.run(prepared)
    assert (report.episodes, report.failed) == (2, 0)


@pytest.mark.slow
def test_the_same_seed_makes_the_tokenizer_that_ships(made):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert json.loads((made / name).read_text()) == json.loads((TINY / name).read_text())


@pytest.mark.slow
def test_what_ships_has_the_shape_that_the_script_makes(made):
    ours, shipped = (json.loads((folder / "config.json").read_text()) for folder in (made, TINY))
    assert ours == shipped
    assert {name: shipped[name] for name in SIZES["small"]} == SIZES["small"]
    shapes = []
    for folder in (made, TINY):
        with safe_open(folder / "model.safetensors", "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
            shapes.append(
                {name: (part.get_shape(), part.get_dtype()) for name, part in slices.items()}
            )
    assert shapes[0] == shapes[1]


def test_what_ships_is_small_finite_and_untied():
    weights = load_file(TINY / "model.safetensors")
    assert (
        sum(
            path.stat().st_size
            for path in TINY.iterdir()
            if path.suffix in (".json", ".safetensors")
        )
        <= 3e6
    )
    assert 0.9e6 < sum(weight.numel() for weight in weights.values()) < 1.2e6
    assert all(torch.isfinite(weight).all() for weight in weights.values())
    assert not torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])


def test_digits_are_single_tokens_and_so_are_the_fixed_parts_of_a_call():
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    assert tokenizer.get_vocab_size() <= OPTIONS.vocabulary
    assert tokenizer.encode("9075", add_special_tokens=False).tokens == list("9075")
    opener, closer = '<tool_call>\n{"name": "python", "arguments": {"code": "', '"}}\n</tool_call>'
    tokens = tokenizer.encode(f"{opener}1+2{closer}", add_special_tokens=False).tokens
    assert tokens == [opener, *"1+2", closer]
    assert tokenizer.decode(tokenizer.encode("naïve 漢字 🙂\n\t").ids) == "naïve 漢字 🙂\n\t"


def test_demonstrations_are_laid_out_as_rollouts_and_render_like_the_template():
    chat, tasks = Chat.from_folder(TINY), MathTasks("train", (1, 2))
    env = make_env("turngym/MathPython-v0")
    assert (
        chat.template.render([{"role": "user", "content": "?"}])
        == "<|im_start|>user\n?<|im_end|>\n"
    )
    for index, one in enumerate(demos(tasks, FORM, 30, seed=0)):
        example = encode(chat, one)
        tokens, assistant = example.tokens.tolist(), example.assistant
        _, info = env.reset(options={"task": index})
        prompt = chat.prompt(info["messages"], info["tools"])
        assert tokens[: len(prompt)] == prompt.tolist()
        spoken = chat.tokenizer.decode(
            np.array(tokens)[assistant].tolist(), skip_special_tokens=False
        )
        assert spoken == "".join(one.says) + "<|im_end|>"  # a call ends with its closer
        talk = [*info["messages"], {"role": "assistant", "content": one.says[0]}]
        for result, text in zip(one.results, one.says[1:]):
            role, content = FORM.observe(result, "python")
            talk += [{"role": role, "content": content}, {"role": "assistant", "content": text}]
        decoded = chat.tokenizer.decode(tokens, skip_special_tokens=False)
        assert chat.template.render(talk, info["tools"]) == decoded + "\n"


def test_the_template_that_ships_is_the_scripts_own():
    assert json.loads((TINY / "tokenizer_config.json").read_text())["chat_template"] == TEMPLATE


# --- demonstrations

TASKS = MathTasks("train", (1, 2))
KINDS = {kind: [demo(TASKS[i], kind, FORM, random.Random(i)) for i in range(60)] for kind in MIX}


def code_of(one: Demo) -> str:
    call = FORM.parse(one.says[0], ("python",)).call
    assert call is not None
    return call.arguments["code"]


def numbers_of(text: str) -> list[str]:
    return "".join(c if c.isdigit() else " " for c in text).split()


def test_the_mix_is_a_distribution_that_demonstrations_follow():
    assert sum(MIX.values()) == pytest.approx(1)
    kinds = Counter()
    for index, one in enumerate(demos(TASKS, FORM, 600, seed=4)):
        kinds[
            "guess"
            if not one.results
            else "slip"
            if code_of(one) != TASKS[index].solution
            else "computed"
        ] += 1
    for kind, share in (
        ("guess", MIX["guess"]),
        ("slip", MIX["slip"]),
        ("computed", MIX["good"] + MIX["misread"]),
    ):
        assert abs(kinds[kind] / 600 - share) < 4 * (share * (1 - share) / 600) ** 0.5


def test_the_same_arguments_demonstrate_the_same_episodes():
    one, again, other = (list(demos(TASKS, FORM, 40, seed)) for seed in (1, 1, 2))
    assert one == again != other
    assert [demo.prompt for demo in one] == [TASKS[i].prompt for i in range(40)]


def test_good_play_earns_the_reward_with_the_real_tool():
    env = make_math_python(split="train", difficulty=(1, 2))
    for index in (0, 11, 12):
        env.reset(options={"task": index})
        observation, reward, done = "", 0.0, False
        for text, result in zip(KINDS["good"][index].says, (*KINDS["good"][index].results, "")):
            observation, reward, done, _, info = env.step(text)
            assert observation.strip() == result
        assert (reward, done, info["used_tool"]) == (1.0, True, True)
    env.close()


def test_planted_play_is_what_its_name_says():
    for index in range(60):
        task = TASKS[index]
        good, guess, slip, misread = (
            KINDS[kind][index] for kind in ("good", "guess", "slip", "misread")
        )
        assert good.says[1] == f"\\boxed{{{good.results[0]}}}" and code_of(good) == task.solution
        assert guess.results == () and guess.says[0][7:-1] in numbers_of(task.prompt)
        assert code_of(slip) != task.solution
        assert (
            slip.results == (run(code_of(slip)),)
            and slip.says[1] == f"\\boxed{{{slip.results[0]}}}"
        )
        assert code_of(misread) == task.solution and misread.results == good.results
        assert misread.says[1][7:-1] in numbers_of(task.prompt)


def test_a_slip_computes_something_else():
    same = [
        one
        for index, one in enumerate(KINDS["slip"])
        if one.results[0] == run(TASKS[index].solution)
    ]
    assert same == []


def test_run_prints_what_python_prints():
    assert run("print((3+4)*5)") == "35"
    assert run("print(2**10//3%7)") == str(2**10 // 3 % 7)


@pytest.mark.parametrize("code", ["import os", "x = 1\nprint(x)", ""])
def test_run_takes_a_single_print_only(code):
    with pytest.raises(ValueError, match="not a single print"):
        run(code)


def test_a_task_without_a_program_cannot_be_demonstrated():
    with pytest.raises(ValueError, match="task gsm8k-1 has no solution program to demonstrate"):
        demo(Task("gsm8k-1", "How many?", "3"), "good", FORM, random.Random(0))
