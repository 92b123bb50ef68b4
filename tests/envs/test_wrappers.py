"""Gymnasium's wrappers around an environment of text: each works, or refuses in Gymnasium's own words."""

import copy
import json

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.wrappers import vector
from gymnasium.wrappers.utils import create_zero_array

import turngym
from turngym.envs.spaces import TextSpace

CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "%s"}}\n</tool_call>'
ANSWER = "\\boxed{1}"
WORKING = {
    "AddWhiteNoise": lambda env: wrappers.AddWhiteNoise(env, 0.5),
    "Autoreset": wrappers.Autoreset,
    "ClipReward": lambda env: wrappers.ClipReward(env, 0, 0.5),
    "DelayObservation": lambda env: wrappers.DelayObservation(env, 1),
    "FrameStackObservation": lambda env: wrappers.FrameStackObservation(env, 3),
    "NormalizeReward": wrappers.NormalizeReward,
    "OrderEnforcing": wrappers.OrderEnforcing,
    "PassiveEnvChecker": wrappers.PassiveEnvChecker,
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "RepeatAction": lambda env: wrappers.RepeatAction(env, 1),
    "StickyAction": lambda env: wrappers.StickyAction(env, 0.0),
    "TimeAwareObservation": lambda env: wrappers.TimeAwareObservation(
        wrappers.TimeLimit(env, 5), flatten=False
    ),
    "TimeLimit": lambda env: wrappers.TimeLimit(env, 5),
    "TransformAction": lambda env: wrappers.TransformAction(env, str.strip, env.action_space),
    "TransformObservation": lambda env: wrappers.TransformObservation(
        env, str.upper, env.observation_space
    ),
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda reward: 2 * reward),
}
REFUSED = {  # what needs numbers, or a picture
    "AddRenderObservation": wrappers.AddRenderObservation,
    "ClipAction": wrappers.ClipAction,
    "DiscretizeAction": lambda env: wrappers.DiscretizeAction(env, 3),
    "DiscretizeObservation": lambda env: wrappers.DiscretizeObservation(env, 3),
    "DtypeObservation": lambda env: wrappers.DtypeObservation(env, np.str_),
    "FilterObservation": lambda env: wrappers.FilterObservation(env, ["a"]),
    "FlattenObservation": wrappers.FlattenObservation,
    "GrayscaleObservation": wrappers.GrayscaleObservation,
    "HumanRendering": wrappers.HumanRendering,
    "MaxAndSkipObservation": wrappers.MaxAndSkipObservation,
    "NormalizeObservation": wrappers.NormalizeObservation,
    "RecordVideo": lambda env: wrappers.RecordVideo(env, "video"),
    "RenderCollection": wrappers.RenderCollection,
    "RescaleAction": lambda env: wrappers.RescaleAction(env, 0, 1),
    "RescaleObservation": lambda env: wrappers.RescaleObservation(env, 0, 1),
    "ReshapeObservation": lambda env: wrappers.ReshapeObservation(env, (1,)),
    "ResizeObservation": lambda env: wrappers.ResizeObservation(env, (1, 1)),
}
ELSEWHERE = {  # of Atari, pictures, and packages that we do not have
    *(
        "ArrayConversion",
        "AtariPreprocessing",
        "JaxToNumpy",
        "JaxToTorch",
        "NumpyToTorch",
        "ObstructView",
        "vector",
    ),
}


def test_every_wrapper_of_gymnasium_is_looked_at():
    assert set(wrappers.__all__) <= {*WORKING, *REFUSED, *ELSEWHERE}


@pytest.mark.parametrize("name", WORKING)
def test_a_wrapper_shows_what_is_in_its_space_and_can_be_forked_and_copied(name):
    env = WORKING[name](gymnasium.make("turngym/MathPython-v0"))
    observation, _ = env.reset(seed=1)
    assert observation in env.observation_space
    observation, *_ = env.step(CALL % "x = 41")
    assert observation in env.observation_space
    twins = [turngym.fork(env), copy.deepcopy(env), env]
    seen = [
        [twin.step(action)[:4] for action in (CALL % "x += 1; print(x)", ANSWER)] for twin in twins
    ]
    assert seen[0] == seen[1] == seen[2] and "42" in str(seen[0])
    for twin in twins:
        twin.close()


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrapper_of_numbers_or_pictures_refuses_text(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, ValueError, NotImplementedError)):
        REFUSED[name](gymnasium.make("turngym/Math-v0"))


def test_stacked_texts_begin_with_the_question_or_with_nothing():
    for padding, first in (("reset", None), ("zero", ""), ("(nothing yet)", "(nothing yet)")):
        made = gymnasium.make("turngym/MathPython-v0")
        env = wrappers.FrameStackObservation(made, 3, padding_type=padding)
        assert env.observation_space == gymnasium.spaces.Tuple([made.observation_space] * 3)
        question = made.reset(seed=1)[0]
        first = question if first is None else first
        assert env.reset(seed=1)[0] == (first, first, question)
        assert env.step(CALL % "print(6)")[0] == (first, question, "6")
        assert env.step(CALL % "print(7)")[0] == (question, "6", "7")
        env.close()


def test_delayed_texts_are_empty_at_first():
    env = wrappers.DelayObservation(gymnasium.make("turngym/MathPython-v0"), 2)
    question = gymnasium.make("turngym/MathPython-v0").reset(seed=1)[0]
    seen = [env.reset(seed=1)[0], *(env.step(CALL % f"print({i})")[0] for i in (1, 2))]
    assert seen == ["", "", question]
    env.close()


def test_the_text_for_no_observation_is_empty():
    assert create_zero_array(TextSpace(5)) == "" and create_zero_array(TextSpace(5)) in TextSpace(5)
    space = gymnasium.spaces.Dict({"a": TextSpace(5), "b": gymnasium.spaces.Tuple([TextSpace(1)])})
    assert create_zero_array(space) == {"a": "", "b": ("",)}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_wrapped_environments_make_a_vector(mode):
    wrapped = [
        lambda env: wrappers.FrameStackObservation(env, 2),
        lambda env: wrappers.DelayObservation(env, 1),
    ]
    for wrap in wrapped:
        envs = gymnasium.make_vec(
            "turngym/MathPython-v0", num_envs=2, vectorization_mode=mode, wrappers=[wrap]
        )
        observations, _ = envs.reset(seed=1)
        assert observations in envs.observation_space
        observations, *_ = envs.step((CALL % "print(6)",) * 2)
        assert observations in envs.observation_space
        envs.close()


VECTORS = {
    "ClipReward": lambda envs: vector.ClipReward(envs, 0, 0.5),
    "DictInfoToList": vector.DictInfoToList,
    "NormalizeReward": vector.NormalizeReward,
    "RecordEpisodeStatistics": vector.RecordEpisodeStatistics,
    "TransformAction": lambda envs: vector.TransformAction(
        envs, tuple, envs.action_space, envs.single_action_space
    ),
    "TransformObservation": lambda envs: vector.TransformObservation(
        envs, lambda texts: tuple(map(str.upper, texts))
    ),
    "TransformReward": lambda envs: vector.TransformReward(envs, lambda rewards: 2 * rewards),
    "VectorizeTransformAction": lambda envs: vector.VectorizeTransformAction(
        envs, wrappers.TransformAction, func=str.strip, action_space=envs.single_action_space
    ),
    "VectorizeTransformObservation": lambda envs: vector.VectorizeTransformObservation(
        envs,
        wrappers.TransformObservation,
        func=str.upper,
        observation_space=envs.single_observation_space,
    ),
    "VectorizeTransformReward": lambda envs: vector.VectorizeTransformReward(
        envs, wrappers.TransformReward, func=lambda reward: 2 * reward
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_wrapper_of_vectors_shows_what_is_in_its_space(name):
    made = gymnasium.make_vec("turngym/Math-v0", num_envs=2, vectorization_mode="sync")
    envs = VECTORS[name](made)
    observations, _ = envs.reset(seed=1)
    assert observations in envs.observation_space
    observations, rewards, *_ = envs.step((ANSWER, ANSWER))
    assert observations in envs.observation_space and len(rewards) == 2
    envs.close()


def test_a_problem_of_any_length_is_in_the_observation_space(tmp_path):
    path = tmp_path / "long.jsonl"
    problems = ["x" * 400_000, "é" * 50_000, "short"]
    path.write_text(
        "".join(json.dumps({"problem": text, "answer": "4"}) + "\n" for text in problems)
    )
    env = gymnasium.make("turngym/Math-v0", tasks=str(path))
    assert env.observation_space == TextSpace(400_000) and env.action_space == TextSpace()
    for index, problem in enumerate(problems):
        observation, _ = env.reset(options={"task": index})
        assert observation == problem and observation in env.observation_space
    envs = gymnasium.make_vec(
        "turngym/Math-v0", num_envs=2, vectorization_mode="async", tasks=str(path)
    )
    observations, _ = envs.reset(seed=1)
    assert observations in envs.observation_space and set(observations) <= set(problems)
    envs.close()
    path.write_text('{"problem": "short", "answer": "4"}\n')
    assert gymnasium.make("turngym/Math-v0", tasks=str(path)).observation_space == TextSpace()
