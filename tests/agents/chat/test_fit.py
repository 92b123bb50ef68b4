import pytest

from turngym.agents.chat.chat import check_fit
from turngym.agents.chat.template import Template, TemplateError
from turngym.envs import Reply, TextEnv
from turngym.envs.registry import make

SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>"}
ALL = {
    "qwen2_5",
    "qwen3_5_think",
    "qwen3_5_think_training",
    "gptoss",
    "gemma",
    "gemma3",
    "llama3",
    "cohere2",
}
MATH, PYTHON = "turngym/Math-v0", "turngym/MathPython-v0"


class Walk(TextEnv):
    """Answers as the user, over several turns."""

    def on_reset(self, rng, options):
        return "?"

    def on_step(self, text):
        return Reply("")


@pytest.fixture(scope="module")
def templates(chat_templates):
    return {
        name: Template(chat_templates[f"{name}.jinja"], SPECIAL, f"/models/{name}") for name in ALL
    }


def fit(template, env):
    """What is wrong, without the name; empty where nothing is."""
    try:
        check_fit(template, env)
    except TemplateError as error:
        assert str(error).startswith(template.name)
        return str(error).removeprefix(template.name)
    return ""


@pytest.mark.parametrize(
    ("env", "names"),
    [
        (
            lambda: make(MATH),
            ALL,
        ),
        (lambda: make(PYTHON), {"qwen2_5", "qwen3_5_think", "qwen3_5_think_training"}),
        (
            lambda: make(PYTHON, format="tags"),
            {"qwen2_5", "qwen3_5_think_training", "gemma", "gemma3", "llama3", "cohere2"},
        ),
        (Walk, {"qwen2_5", "qwen3_5_think_training", "gemma", "gemma3", "llama3", "cohere2"}),
        (
            lambda: Walk(max_turns=1),
            ALL,
        ),
    ],
    ids=["one turn, system prompt", "tools, hermes", "tools, tags", "several turns", "one turn"],
)
def test_an_environment_takes_the_templates_that_carry_what_it_says(templates, env, names):
    env = env()
    assert {name for name, template in templates.items() if not fit(template, env)} == names


def test_the_reason_and_the_way_out_are_told(templates):
    problem = fit(templates["qwen3_5_think"], make(PYTHON, format="tags"))
    assert problem.startswith(
        " has a chat template that cannot carry the role 'user' that this environment answers in ("
    )
    assert (
        "(rewrites earlier turns: adding messages after an assistant's turn turns '<think>"
        in problem
    )
    assert "; choose another call format: --option format=hermes" in problem
    problem = fit(templates["llama3"], make(PYTHON))
    assert (
        " that does not show tools to the model; choose another call format: --option format=tags"
        in problem
    )
    for name, env in (("gptoss", make(PYTHON)), ("qwen3_5_think", Walk())):
        problem = fit(templates[name], env)
        assert "cannot carry the role" in problem
        assert problem.endswith(
            "; put a template that can (for models that think: the training variant of theirs) into chat_template.jinja"
        )
    refusing = Template("{{ raise_exception('not today') }}", name="/models/mute")
    assert fit(refusing, make(MATH)).startswith(
        " cannot render the roles system, user: not today; put a template"
    )


def test_an_environment_is_not_begun_to_be_checked(templates):
    check_fit(templates["qwen2_5"], Walk())  # it has no messages before its first reset
