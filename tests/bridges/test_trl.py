"""A real step of TRL's `GRPOTrainer`, as trl.md has it: calls reach the tool, the final answer the grader."""

import inspect

import pytest

pytestmark = pytest.mark.filterwarnings("default")  # what these packages warn of is theirs
CALLS = (
    "{%- for call in message.tool_calls or [] %}"
    "{{- '<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}{%- endfor %}"
)


@pytest.fixture(scope="module")
def source():
    from turngym.envs.adapters.trl import Episodes

    return Episodes("turngym/MathPython-v0", difficulty=1)


@pytest.mark.slow
def test_a_step_of_the_trainer_calls_the_tool_and_grades_the_answer(source, tmp_path, monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_template

    from turngym.agents.models.resolve import TINY

    tokenizer = AutoTokenizer.from_pretrained(
        TINY
    )  # a template that spells calls, as those of stock models do
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "message.content }}", "(message.content or '') }}" + CALLS
    )
    tokenizer.response_template = qwen3_template
    settings = GRPOConfig(
        output_dir=str(tmp_path),
        use_cpu=True,
        max_steps=1,
        per_device_train_batch_size=16,
        num_generations=8,
        max_completion_length=200,
        report_to=[],
        logging_steps=1,
        seed=1,
    )
    made = []
    trainer = GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(TINY),
        source.reward,
        settings,
        train_dataset=Dataset.from_list(source.rows(64)),
        processing_class=tokenizer,
        environment_factory=lambda: made.append(source.make()) or made[-1],
    )
    trainer.train()
    step = trainer.state.log_history[0]
    played = [one._env for one in made]
    assert len(played) == 16
    called = [env for env in played if env.results]
    assert step["tools/call_frequency"] > 0 and called
    assert step["tools/failure_frequency"] == 0
    assert 0 < step["rewards/reward/mean"] < 1
    assert step["rewards/reward/mean"] == pytest.approx(
        sum(one._return for one in made) / len(made)
    )
    assert all(not env.live for env in played)


def test_the_reward_is_that_of_the_environment(source):
    row, one = source.rows(3)[2], source.make()
    one.reset(**row)
    assert row["prompt"] == one._env.messages(one._env.task.prompt)
    assert one.python(code="print(6 * 7)") == "42"
    gold = one._env.gold()[-1]
    assert source.reward([[{"role": "assistant", "content": gold}]], [one]) == [1.0]
    one.reset(**row)
    assert source.reward([[{"role": "assistant", "content": "\\boxed{-17}"}]], [one]) == [0.0]
    one.reset(**row)
    assert source.reward([[{"role": "tool", "content": "42"}]], [one]) == [
        0.0
    ]  # cut off before it answered
    one.reset(**row)
    source.reward([[{"role": "assistant", "content": gold}]], [one])
    assert one.python(code="print(1)") == "(the episode is over)"


def test_a_failure_has_no_reward(source, monkeypatch):
    from turngym.envs.outcomes import EnvFailure

    one = source.make()
    one.reset(**source.rows(1)[0])

    def fail(**_):
        raise EnvFailure("the grader is gone")

    monkeypatch.setattr(one._env.grader, "grade", fail)
    assert source.reward([[{"role": "assistant", "content": "\\boxed{1}"}]], [one]) == [None]


def test_tools_have_the_schemas_that_trl_makes(source):
    from transformers.utils import get_json_schema

    one = source.make()
    public = [
        name
        for name, _ in inspect.getmembers(type(one), inspect.isfunction)
        if not name.startswith("_")
    ]
    assert public == ["python", "reset"]
    ours = one._env.toolbox.schemas[0]["function"]
    theirs = get_json_schema(one.python)["function"]
    assert {key: theirs[key] for key in ours} == ours


def test_a_game_has_one_tool():
    from turngym.envs.adapters.trl import Episodes

    source = Episodes("turngym/Household-v0", size="tiny", task_types="pick_and_place_simple")
    row, one = source.rows(1)[0], source.make()
    one.reset(**row)
    while one._env.live:
        said = one.act(text=one._env.gold()[0])
    assert said and source.reward([[{"role": "assistant", "content": "done"}]], [one]) == [1.0]


def test_what_cannot_be_is_refused(source):
    with pytest.raises(ValueError, match="count is 0; the split has 1 to"):
        source.rows(0)
