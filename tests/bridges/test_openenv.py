"""As openenv.md has it: OpenEnv's own client on our server, our environment on OpenEnv servers, ours and another."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

pytestmark = pytest.mark.filterwarnings("default")  # what these packages warn of is theirs
CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "%s"}}\n</tool_call>'


@pytest.fixture
def math(serve):
    from turngym.envs.adapters.openenv import app

    return serve(app("turngym/MathPython-v0", difficulty=1))


def gold(env, index):
    env.reset(options={"task": index})
    return env.gold()


@pytest.fixture
def local():
    from turngym.envs.registry import make

    env = make("turngym/MathPython-v0", difficulty=1)
    yield env
    env.close()


def test_the_client_of_the_package_plays_an_episode(math, local):
    from openenv import GenericEnvClient

    with GenericEnvClient(base_url=math).sync() as client:
        begun = client.reset(split="train", index=5)
        observation, info = local.reset(options={"task": 5})
        assert begun.observation["text"] == observation and begun.observation["messages"] == info["messages"]
        seen = client.step({"text": CALL % "x = 41; print(x)"})
        assert seen.observation["text"] == "41" and not seen.done
        seen = client.step({"text": local.gold()[-1]})
        assert seen.done and seen.reward == 1.0
        assert seen.observation["terminated"] and seen.observation["stop"] == "answered"
        assert client.state()["step_count"] == 2


def test_sessions_do_not_share_an_episode(math, local):
    from openenv import GenericEnvClient

    def play(index):
        with GenericEnvClient(base_url=math).sync() as client:
            client.reset(split="train", index=index)
            client.step({"text": CALL % f"x = {index}"})
            return client.step({"text": CALL % "print(x)"}).observation["text"]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(play, range(8))) == [str(i) for i in range(8)]


def test_tasks_can_be_listed(math):
    name = httpx.get(f"{math}/list_environments").json()[0]
    assert [one["name"] for one in httpx.get(f"{math}/{name}/splits").json()] == ["train", "valid", "test"]
    count = httpx.post(f"{math}/{name}/num_tasks", json={"split": "test"}).json()["num_tasks"]
    assert count > 100
    assert httpx.post(f"{math}/{name}/task", json={"split": "test", "index": count}).status_code == 400
    listed = httpx.post(f"{math}/{name}/task_range", json={"split": "test", "start": 2, "stop": 4}).json()["tasks"]
    assert [one["index"] for one in listed] == [2, 3]


def test_an_environment_here_is_the_one_there(math, local):
    from turngym.envs.adapters.openenv import Remote

    there = Remote(math)
    assert len(there.tasks) == len(local.tasks)
    for index in (0, 7):
        (seen, info), (own, own_info) = (env.reset(options={"task": index}) for env in (there, local))
        assert (seen, info["messages"], info["task_id"]) == (own, own_info["messages"], own_info["task_id"])
        for action in (CALL % "print(3)", *local.gold()[-1:]):
            got, own_got = there.step(action), local.step(action)
            assert got[:4] == own_got[:4] and got[4]["messages"] == own_got[4]["messages"]
        assert got[4]["stop"] == own_got[4]["stop"] == "answered"
    there.close()


def test_a_fork_plays_on_in_a_session_of_its_own(math):
    from turngym.envs.adapters.openenv import Remote

    env = Remote(math)
    env.reset(options={"task": 1})
    env.step(CALL % "x = 1")
    twin = env.fork()
    assert env.step(CALL % "x += 1; print(x)")[0] == "2"
    assert twin.step(CALL % "x += 2; print(x)")[0] == "3"
    env.close(), twin.close()


def test_a_server_of_others_is_an_environment(serve):
    """A world without tasks, whose action and observation have other names."""
    from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

    from turngym.envs.adapters.openenv import Remote

    class Guess(Action):
        number: str

    class Hint(Observation):
        hint: str

    class World(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed=None, episode_id=None, **kwargs):
            self.goal = str(seed % 2)
            return Hint(hint="0 or 1?")

        def step(self, action, timeout_s=None, **kwargs):
            right = action.number == self.goal
            return Hint(hint="yes" if right else "no", done=True, reward=float(right))

        @property
        def state(self):
            return State()

    env = Remote(serve(create_fastapi_app(World, Guess, Hint, 4)), observation="hint")
    rewards = set()
    for seed in range(8):
        assert env.reset(seed=seed)[0] == "0 or 1?"
        text, reward, terminated, truncated, info = env.step("1")
        assert text in ("yes", "no") and terminated and not truncated and info["stop"] == "goal"
        rewards.add(reward)
    assert rewards == {0.0, 1.0}
    env.close()


def test_what_fails_is_a_failure_and_no_reward(math):
    from turngym.envs.adapters.openenv import Remote

    env = Remote(math)
    env.reset(options={"task": 0})
    env._client.close()
    *_, info = env.step("hello")  # a new session, which knows no episode
    assert info["outcome"] == "infra_error" and "did not answer step" in info["error"]


def test_mistakes_are_named(math, serve):
    from turngym.envs.adapters.openenv import Remote

    with pytest.raises(ValueError, match="where no OpenEnv server answers"):
        Remote("http://127.0.0.1:9")
    with pytest.raises(ValueError, match="options\\['task'\\] is -1"):
        Remote(math).reset(options={"task": -1})
