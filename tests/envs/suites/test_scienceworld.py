"""`ScienceWorld-v0` on scripted JVMs; the official simulator is counted by `make test-suites`."""

import math
import subprocess
import sys

import pytest

from turngym.envs import EnvFailure, registry
from turngym.envs.suites import jvm, make_scienceworld, scienceworld
from turngym.envs.suites.scienceworld import SimulatedWorld, variations


class FakeJvm:
    """A JVM whose world counts its commands: `win` at 3 commands wins, `focus on wrong` fails."""

    fail, drift = "", 0

    def __init__(self, heap=96):
        self.heap, self.done, self.score, self.log = heap, False, 0.0, []

    def call(self, method, *args, target=""):
        if method == self.fail:
            raise EnvFailure("the JVM died at step: no answer")
        if method == "load":
            self.done, self.score, self.log = False, 0.0, []
            return ""
        if method == "step":
            self.log.append(args[0])
            if args[0] == "dig":
                self.score += 0.07
            if args[0] == "win":
                self.done, self.score = True, 1.0
            if args[0] == "focus on wrong":
                self.done, self.score = True, -1.0
            return (
                "No known action matches that input."
                if args[0] == "x"
                else f"{len(self.log)} {FakeJvm.drift}"
            )
        golds = ["dig", "dig", "win"]
        return {
            "getTaskDescription": "Your task is to dig.",
            "getScore": self.score,
            "getCompleted": self.done,
            "getValidActionObjectCombinationsJSON": '{"validActions": [{"action": "win"}, {"action": "dig"}]}',
            "getGoldActionSequence": "o1",
            "size": len(golds),
            "get": golds[args[0]] if args else None,
        }[method]


class FakePool:
    def __init__(self):
        self.taken, self.given, self.closed, self.most = [], [], 0, 99

    def take(self, heap=96):
        if len(self.taken) - len(self.given) >= self.most:
            raise jvm.AllLent("all are lent")
        self.taken.append(FakeJvm(heap))
        return self.taken[-1]

    def give_back(self, jvm):
        self.given.append(jvm)

    def close(self):
        self.closed += 1


@pytest.fixture
def pool(monkeypatch):
    pool = FakePool()
    monkeypatch.setattr(scienceworld, "POOL", pool)
    monkeypatch.setattr(scienceworld, "describe_missing", lambda: "")
    monkeypatch.setattr(FakeJvm, "drift", 0)
    monkeypatch.setattr(FakeJvm, "fail", "")
    scienceworld._gold_path.cache_clear()
    yield pool
    scienceworld._gold_path.cache_clear()


@pytest.fixture
def env(pool):
    env = make_scienceworld(task="boil", max_turns=5)
    yield env
    env.close()


def test_an_episode_pays_the_score_as_it_grows_and_gives_its_jvm_back(env, pool):
    opening, info = env.reset(seed=0, options={"task": 3})
    assert opening == "Your task is to dig.\n\n1 0" and info["task_id"] == "boil/3"
    assert env.gold() == ["dig", "dig", "win"] and pool.taken[1].heap == scienceworld.GOLD_HEAP_MIB
    _, reward, *_, info = env.step("<action>dig</action>")
    assert (reward, info["score"], info["won"], info["rewards"]) == (
        0.07,
        7,
        False,
        {"score": 0.07, "won": 0.0},
    )
    assert env.gold() == ["dig", "win"] and env.valid_actions() == ["dig", "win"]
    env.step("dig")
    text, _, terminated, _, info = env.step("win")
    assert (
        terminated
        and info["stop"] == "goal"
        and info["rewards"] == {"score": 1.0, "won": 1.0}
        and text == "4 0"
    )
    assert sum(env.turn_rewards) == 1.0 and pool.taken[0] in pool.given


def test_a_wrong_focus_fails_and_the_other_reward_can_be_paid(pool):
    env = make_scienceworld(task="boil", reward="won")
    env.reset(seed=0)
    env.step("dig")
    _, reward, terminated, _, info = env.step("focus on wrong")
    assert (reward, terminated, info["stop"], info["rewards"]) == (
        0.0,
        True,
        "answered",
        {"score": -1.0, "won": 0.0},
    )
    env.reset(seed=0)
    assert env.step("win")[1] == 1.0
    env.close()


def test_what_is_no_command_is_said_and_nothing_is_done(env, pool):
    env.reset(seed=0)
    for say in ("dig\ndig", "<action></action>", "d" * 301):
        text, reward, *_, info = env.step(say)
        assert text.startswith("Error: this ") and reward == 0 and info["valid"] is False
    assert env.step("x")[4]["valid"] is False and pool.taken[0].log == ["look around", "x"]
    env.reset(seed=0)
    assert env.turn == 0


def test_a_fork_repeats_what_was_done_in_another_jvm(env, pool):
    env.reset(seed=0)
    env.step("dig")
    twin = env.fork()
    assert pool.taken[-1] is not pool.taken[0] and pool.taken[-1].log == ["look around", "dig"]
    assert twin.step("dig") == env.step("dig") and twin.world is not env.world
    twin.close()
    assert env.step("win")[2]
    ended = env.fork()
    assert ended.world.jvm is None and not ended.live


def test_a_world_that_waits_is_set_aside_where_all_jvms_are_lent_and_played_again(
    env, pool, monkeypatch
):
    env.reset(seed=0)
    twin, other = env.fork(), env.fork()
    assert other.step("dig")[0] == "2 0"
    pool.most = 3
    more = env.fork()  # env and twin have done least: one of them gives its JVM
    assert (
        len([one for one in (env, twin, other) if one.world.jvm]) == 2
        and other.world.jvm
        and more.world.jvm
    )
    assert [one.step("dig")[0] for one in (env, twin, more)] == ["2 0"] * 3 and other.step("win")[2]
    assert len(pool.taken) - len(pool.given) == 2
    monkeypatch.setattr(scienceworld, "TIMEOUT", 0.1)
    pool.most = 0
    with pytest.raises(EnvFailure, match="all are lent"):
        scienceworld.take_jvm()


def test_a_fork_that_sees_something_else_is_refused_and_counted(env, pool, monkeypatch):
    env.reset(seed=0, options={"task": 1})
    env.step("dig")
    before = SimulatedWorld.diverged
    monkeypatch.setattr(FakeJvm, "drift", 1)
    with pytest.raises(
        EnvFailure,
        match=r"boil/1 played again for 1 commands is another world: .* deterministic there",
    ):
        env.fork()
    assert SimulatedWorld.diverged == before + 1 and pool.given == [pool.taken[-1]]


def test_a_jvm_that_dies_is_a_failure_of_the_infrastructure(env, monkeypatch):
    env.reset(seed=0)
    monkeypatch.setattr(FakeJvm, "fail", "step")
    _, reward, terminated, truncated, info = env.step("dig")
    assert math.isnan(reward) and (terminated, truncated, info["outcome"]) == (
        False,
        True,
        "infra_error",
    )
    assert info["error"] == "the JVM died at step: no answer"


def test_jvms_end_with_the_last_environment(pool):
    env = make_scienceworld(task="boil")
    twin = env.fork()
    env.close()
    open_before = pool.closed
    twin.close()
    assert not scienceworld.ScienceWorld.open and (open_before, pool.closed) == (0, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task": "boyl"}, "task is 'boyl'; did you mean 'boil'"),
        ({"split": "tran"}, "split is 'tran'; the splits are train, valid, test"),
        ({"sets": "L3"}, "sets is 'L3'; .*there are official, L0, L1, L2"),
        ({"sets": "L0", "split": "all"}, "split is 'all'"),
        ({"task": "boil", "variation": 30}, "variation is 30, split 'train', .* boil has 0 to 13"),
        ({"task": "boil", "variation": [0, 20]}, "there is none such"),
        ({"task": "boil", "split": "test", "sets": "L2", "variation": 21}, "boil has none"),
        ({"simplification": "hard"}, "simplification is 'hard'; "),
        ({"reward": "wins"}, "reward is 'wins'; there are score, won"),
        ({"variations": 1}, "takes no option 'variations'; did you mean 'variation'"),
    ],
)
def test_bad_options_are_one_line(pool, options, said):
    with pytest.raises(ValueError, match=said) as refused:
        registry.make("turngym/ScienceWorld-v0", **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("sets", "split", "count"),
    [
        *(("official", "train", 3592), ("official", "valid", 1796), ("official", "test", 1819)),
        *(
            ("official", "all", 7207),
            ("L0", "train", 3322),
            ("L0", "test", 1661),
            ("L1", "train", 3322),
        ),
        *(("L1", "test", 1684), ("L2", "train", 2242), ("L2", "test", 549)),
    ],
)
def test_sets_have_their_sizes_and_no_task_is_in_two(pool, sets, split, count):
    assert len(make_scienceworld(split=split, sets=sets).tasks) == count
    if split != "all":
        parts = [
            set(make_scienceworld(split=one, sets=sets).tasks) for one in ("train", "valid", "test")
        ]
        assert sum(map(len, parts)) == len(set.union(*parts))


def test_of_l2_no_task_of_the_test_is_trained_on():
    known = scienceworld.OFFICIAL
    train = {task for task in known["variations"] if variations(task, "train", "L2")}
    assert len(train) == 19 and not train & set(known["unseen"])


def test_what_is_not_installed_is_named_with_its_line(monkeypatch):
    monkeypatch.setattr(jvm, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"not installed: pip install --no-deps scienceworld==1.2.3 py4j"
    ):
        make_scienceworld()
    monkeypatch.setattr(jvm, "find_spec", lambda name: name)
    monkeypatch.setattr(jvm, "_find_java", lambda: None)
    with pytest.raises(
        ValueError, match="there is no program java: apt-get install openjdk-17-jre-headless"
    ):
        make_scienceworld()


SERVER = """
import socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1]); print("secret", flush=True)
connection, _ = listening.accept()
lines = connection.makefile("rw", encoding="utf-8", newline="\\n")
def answer(text): lines.write(text + "\\n"); lines.flush()
assert [lines.readline(), lines.readline()] == ["A\\n", "secret\\n"]; answer("!yv")
while True:
    request = []
    while (line := lines.readline().rstrip("\\n")) != "e":
        if not line: sys.exit()
        request.append(line)
    if request[0] == "i": answer("!yro0")
    elif request[2] == "toString": answer("!ysan\\\\nerror")
    elif request[2] == "boom": answer("!xro7")
    elif request[2] == "half": answer("!yd0.5")
    elif request[2] == "die": sys.exit()
    else: answer("!ys" + "|".join(request[3:]))
"""


@pytest.fixture
def started(monkeypatch):
    """Instead of Java a program that speaks the protocol."""
    real = subprocess.Popen
    monkeypatch.setattr(jvm, "_class_path", lambda: "a.jar")
    monkeypatch.setattr(
        jvm.subprocess,
        "Popen",
        lambda command, **more: real([sys.executable, "-c", SERVER], **more),
    )
    made = jvm.JvmPool()
    yield made
    made.close()


def test_the_protocol_carries_any_text_and_errors(started):
    one = started.take()
    assert (
        one.call("step", "a\\b\nc\rd é🍎", True, 3) == "sa\\b\nc\rd é🍎|btrue|i3"
        and one.call("half") == 0.5
    )
    with pytest.raises(EnvFailure, match="the JVM failed at boom: an\nerror"):
        one.call("boom")
    assert one.process.poll() is not None


def test_a_jvm_is_used_again_if_it_lives(started):
    one = started.take()
    started.give_back(one)
    assert started.take() is one
    with pytest.raises(EnvFailure, match=r"the JVM (died|failed) at die: it closed the connection"):
        one.call("die")
    started.give_back(one)
    two = started.take()
    assert two is not one and one.process.poll() is not None
    started.give_back(two)
    started.close()
    assert two.process.poll() is not None


def test_there_is_a_most_of_jvms(started, monkeypatch):
    monkeypatch.setattr(started, "_places", jvm.BoundedSemaphore(1))
    taken = started.take()
    with pytest.raises(
        EnvFailure, match="64 worlds are live, which is the most; close an environment or a fork"
    ):
        started.take()
    taken.close()


def test_a_jvm_that_does_not_start_says_why(monkeypatch):
    real = subprocess.Popen
    monkeypatch.setattr(jvm, "_class_path", lambda: "a.jar")
    code = "import sys; sys.exit('Could not reserve enough space')"
    monkeypatch.setattr(
        jvm.subprocess, "Popen", lambda command, **more: real([sys.executable, "-c", code], **more)
    )
    with pytest.raises(EnvFailure, match="a JVM does not start: Could not reserve enough space"):
        jvm.Jvm()
