import gzip
import json
import math
import random
from contextlib import closing
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import turngym
from turngym.envs.math import make_math, make_math_python
from turngym.envs.math.grading import grader as grade
from turngym.envs.math.problems.families import FAMILIES
from turngym.envs.math.problems.tasks import DIFFICULTIES
from turngym.tools import ToolCall, get_format
from turngym.tools.python import LEVELS

IDS = ("turngym/Math-v0", "turngym/MathPython-v0")
CANARY = "48151623.42"


def code(text):
    return get_format("hermes").render(ToolCall("python", {"code": text}))


def expert(env, seed, task):
    """The last reward and info of the environment's own gold."""
    env.reset(seed=seed, options={"task": task})
    while True:
        _, reward, terminated, truncated, info = env.step(env.unwrapped.gold()[0])
        if terminated or truncated:
            return reward, info


def play(env, actions):
    seen = []
    for action in actions:
        text, reward, terminated, truncated, info = env.step(action)
        seen.append((text, reward, terminated, truncated, json.dumps(info)))
    return seen


@pytest.fixture
def python():
    """MathPython as Gymnasium makes it, on task 12."""
    env = gymnasium.make(IDS[1], max_turns=9, timeout=30.0)
    env.reset(seed=7, options={"task": 12})
    yield env
    env.close()


# --- Gymnasium


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasiums_check_passes_without_a_warning(env_id, monkeypatch):
    logged = []
    for name in ("warn", "deprecation", "error"):
        monkeypatch.setattr(gymnasium.logger, name, lambda *said, **_: logged.append(said))
    env = gymnasium.make(env_id)
    check_env(env.unwrapped)
    env.reset(seed=0)
    env.step("hello")
    env.close()
    assert logged == []


@pytest.mark.parametrize("env_id", IDS)
def test_sync_and_async_vectors_see_what_single_environments_see(env_id):
    say = [
        [code("n = 20\nn + 1"), "no answer"],
        [code("n * 2"), code("1")],
        ["\\boxed{0}", "\\boxed{é}"],
    ]
    seen = {}
    for mode in ("sync", "async"):
        envs = gymnasium.make_vec(env_id, num_envs=2, vectorization_mode=mode)
        seen[mode] = [envs.reset(seed=[3, 4])[0]]
        for actions in say:
            observations, rewards, terminated, truncated, info = envs.step(tuple(actions))
            seen[mode].append(
                (observations, rewards.tolist(), terminated.tolist(), truncated.tolist())
            )
            seen[mode].append([[dict(said) for said in messages] for messages in info["messages"]])
        envs.close()
    assert seen["sync"] == seen["async"]
    assert isinstance(seen["async"][0], tuple) and all(seen["async"][0])
    assert seen["async"][0] == tuple(gymnasium.make(env_id).reset(seed=seed)[0] for seed in (3, 4))
    if env_id == IDS[1]:
        assert [seen["async"][1][0][0], seen["async"][3][0][0]] == ["21", "40"]


def test_wrappers_work():
    env = gymnasium.make(IDS[1])
    env = gymnasium.wrappers.TransformAction(
        env, lambda text: f"\\boxed{{{text}}}", env.action_space
    )
    env = gymnasium.wrappers.TransformObservation(env, str.upper, env.observation_space)
    env = gymnasium.wrappers.RecordEpisodeStatistics(
        gymnasium.wrappers.TransformReward(env, lambda reward: 3 * reward)
    )
    observation, _ = env.reset(seed=0, options={"task": 5})
    assert observation == env.unwrapped.task.prompt.upper()
    _, reward, terminated, _, info = env.step(env.unwrapped.task.gold)
    assert (reward, terminated, info["episode"]["r"], info["episode"]["l"]) == (3.0, True, 3.0, 1)


def test_resets_of_one_seed_are_equal_and_global_generators_untouched():
    np.random.seed(1)
    before = np.random.get_state()[1].tolist(), random.getstate()
    for env_id in IDS:
        one, two = gymnasium.make(env_id), gymnasium.make(env_id)
        for seed in range(5):
            assert one.reset(seed=seed) == one.reset(seed=seed) == two.reset(seed=seed)
        assert one.reset()[0] == two.reset()[0]
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before


# --- gold


@pytest.mark.parametrize("family", FAMILIES)
def test_gold_scores_one_in_every_family_and_difficulty(family):
    for level in DIFFICULTIES:
        alone = make_math(families=family, difficulty=level, split="valid")
        armed = make_math_python(families=[family], difficulty=level, timeout=30.0)
        for task in range(40):
            reward, info = expert(alone, 0, task)
            assert (reward, info["stop"]) == (1.0, "answered"), info
            if task < 5:
                reward, info = expert(armed, 0, task)
                assert (reward, info["turn"], info["used_tool"]) == (1.0, 2, True), info
        armed.close()


def test_gold_scores_one_on_real_questions(shared_data):
    path = shared_data / "math" / "gsm8k_test.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    env = make_math_python(tasks=path, split="test")
    assert len(env.tasks) == len(rows) == 1319
    for task in range(0, len(rows), 10):
        reward, _ = expert(env, 0, task)
        question = next(rows[task][key] for key in ("problem", "question") if key in rows[task])
        assert (reward, env.task.prompt) == (1.0, question)


def test_an_expert_with_one_turn_answers_at_once():
    env = make_math_python(max_turns=1)
    assert expert(env, 0, 3)[0] == 1.0


def test_a_wrong_answer_scores_zero_and_no_answer_is_named(python):
    assert python.step("\\boxed{-99999}")[1:4] == (0.0, True, False)
    python.reset(seed=1)
    *_, info = python.step("I do not know")
    assert (info["score"], info["answer"], info["stop"]) == (0.0, None, "no_answer")


# --- a running Python session


def test_a_long_result_is_cut_to_what_the_agent_may_see():
    with closing(make_math_python(max_output=64)) as env:
        env.reset(seed=0)
        call = get_format("hermes").render(
            ToolCall("python", {"code": "print('a' * 500 + 'z' * 500)"})
        )
        shown = env.step(call)[0]
    assert "aaa" in shown and "zzz" in shown and len(shown) < 200


def test_a_fork_has_the_sessions_variables_and_neither_sees_the_other(python):
    play(python, [code("x = [1]\nx"), code("x.append(2)\nx")])
    twin, astray = turngym.fork(python), turngym.fork(python)
    assert play(astray, [code("x.clear()\nx"), code("x = None")])[0][0] == "[]"
    after = [code("x.append(3)\nx"), "<tool_call>", code("sum(x)"), "\\boxed{6}"]
    seen = play(twin, after)
    assert seen == play(python, after)
    assert [row[0] for row in seen] == ["[1, 2, 3]", seen[1][0], "6", ""]
    assert twin.unwrapped.snapshot() == python.unwrapped.snapshot() != astray.unwrapped.snapshot()
    twin.close()
    astray.close()


def test_a_snapshot_rebuilds_the_session_in_a_fresh_environment(python):
    play(python, [code("x = 40"), "<tool_call>oops</tool_call>", code("x += 2\nx")])
    fresh = make_math_python(max_turns=9, timeout=30.0)
    assert fresh.restore(json.loads(json.dumps(python.unwrapped.snapshot()))) == "42"
    after = [code("x"), "\\boxed{1}"]
    assert play(fresh, after) == play(python, after)
    fresh.close()


@pytest.mark.parametrize(
    "changed", [{"split": "valid"}, {"difficulty": 5}, {"system": "Else."}, {"timeout": 9.0}]
)
def test_an_ended_episode_of_other_options_is_not_taken_for_this_one(changed):
    env = make_math_python()
    env.reset(seed=0)
    env.step("\\boxed{-1}")
    with pytest.raises(RuntimeError, match="replay of 1 actions diverged"):
        make_math_python(**changed).restore(env.snapshot())


def test_the_tool_has_the_level_that_is_asked_for_and_the_strongest_otherwise():
    for level in LEVELS:
        env = gymnasium.make(IDS[1], level=level)
        assert (
            env.unwrapped.toolbox.tools["python"].level
            == env.reset(seed=0)[1]["levels"]["python"]
            == level
        )
        assert env.unwrapped.fork().toolbox.levels == {"python": level}
    assert gymnasium.make(IDS[1]).reset(seed=0)[1]["levels"] == {"python": LEVELS[0]}
    assert "levels" not in gymnasium.make(IDS[0]).reset(seed=0)[1]


# --- secrets and failures


def test_the_gold_is_in_nothing_that_the_agent_or_a_log_can_see(tmp_path, monkeypatch):
    path = tmp_path / "tasks.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.write(json.dumps({"problem": "Which number?", "answer": CANARY}))
    env = gymnasium.make(IDS[1], tasks=str(path), max_turns=20)
    bare = env.unwrapped
    seen = [env.reset(seed=0), str(env), env.spec]
    seen += play(env, ["<tool_call>", code("1/0"), code("print(globals().keys(), locals())")])
    for answer in (
        "3",
        "x + \\sqrt{2}",
        "48151623.43",
        "\\frac{1}{0}",
        "1, 2",
        "a" * 6000,
        "\\text{none}",
        "}{",
    ):
        env.reset(seed=0)
        seen += [
            *play(env, [f"\\boxed{{{answer}}}"]),
            bare.snapshot(),
            vars(bare),
            bare.task,
            bare.tasks[0],
        ]
    monkeypatch.setattr(grade, "_compare_with_number", _broken)
    env.reset()
    seen += play(env, ["\\boxed{x}"])
    assert CANARY not in repr(seen)
    assert seen[-1][2:4] == (False, True)
    assert expert(env, 0, 0)[0] == 1.0
    env.close()


def _broken(*_):
    raise grade.GraderFailure("the grader's process cannot start")


def test_a_grader_that_cannot_run_never_scores_zero(monkeypatch):
    monkeypatch.setattr(grade, "_ask_math_verify", _broken)
    env = make_math()
    env.reset(seed=0)
    env.task = replace(env.task, gold=r"\sqrt{2}")
    _, reward, terminated, truncated, info = env.step(r"\boxed{\frac{2}{\sqrt{2}}}")
    assert math.isnan(reward) and (terminated, truncated) == (False, True)
    assert (info["outcome"], info["error"]) == ("infra_error", "the grader's process cannot start")


# --- options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"difficulty": 6}, ["difficulty is 6;", "1, 2, 3, 4, 5"]),
        ({"difficulty": (0, 1)}, ["difficulty is (0, 1)"]),
        ({"difficulty": 1.5}, ["difficulty is 1.5;"]),
        ({"difficulty": "3"}, ["difficulty is '3';"]),
        ({"difficulty": ()}, ["difficulty is ()"]),
        ({"families": "word"}, ["unknown family 'word'", "did you mean 'words'?"]),
        (
            {"families": ["words", "units", "geometry"]},
            ["unknown family 'geometry'", "arithmetic, words"],
        ),
        ({"families": []}, ["families is empty"]),
        ({"split": "dev"}, ["split is 'dev'", "train, valid, test"]),
        ({"tasks": "/nowhere.jsonl"}, ["/nowhere.jsonl does not exist"]),
        (
            {"format": "xml"},
            ["unknown tool-call format 'xml'", "hermes, tags, fenced, llama-json, pythonic"],
        ),
        ({"max_turns": 0}, ["max_turns is 0"]),
        ({"timeout": -1.0}, ["timeout is -1.0", "0.01 to 3600 seconds"]),
        ({"memory_mb": 1}, ["memory_mb is 1", "64 to"]),
        ({"max_output": 1}, ["max_output is 1", "64 to"]),
        ({"level": "rlimits"}, ["level is 'rlimits'", "namespaces", "landlock", "rlimits-only"]),
    ],
)
def test_a_bad_option_is_named_with_its_value_and_what_would_do(options, words):
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        make_math_python(**options)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("options", [{"difficulty": 3}, {"families": "words"}])
def test_options_of_the_generator_are_refused_with_a_file(options, tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    with pytest.raises(ValueError, match=f"{next(iter(options))} is .*, but the tasks come from"):
        gymnasium.make("turngym/Math-v0", tasks=str(path), **options)


def test_a_holdout_is_refused_without_a_file():
    with pytest.raises(ValueError, match=r"holdout is 0\.1, but generated splits share no task"):
        gymnasium.make("turngym/Math-v0", holdout=0.1)


def test_an_answer_of_a_file_may_be_a_list_of_right_ones(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('[{"question": "6 * 8?", "answer": ["48", "forty-eight"]}]')
    env = make_math(tasks=path)
    env.reset(seed=0)
    assert env.task.golds == ("48", "forty-eight") and env.step(r"\boxed{48}")[1] == 1.0
