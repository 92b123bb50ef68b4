import json
import os
import socket
import subprocess
import sys

import gymnasium
import pytest

from turngym.agents.check.clauses import CLAUSES, run
from turngym.agents.check.episodes import Subject
from turngym.envs import registry
from turngym.envs.qa import QATask, SearchEnv, make_search
from turngym.envs.qa import make as qa_make
from turngym.envs.qa.expert import SearchExpert
from turngym.tools.search.bm25 import open_index
from turngym.tools.search.serve import serve

SEARCH = "turngym/Search-v0"
TINY = {"size": "tiny"}
CORPUS = [
    {"id": "p1", "title": "France", "text": "The capital of France is Paris."},
    {"id": "p2", "title": "Paris", "text": "Paris lies on the Seine."},
    {"id": "p3", "title": "Lyon", "text": "Lyon lies on the Rhône."},
]
QUESTION = {
    "question": "On which river is the capital of France?",
    "answers": ["Seine", "La Seine"],
    "gold_passages": ["p1", "p2"],
    "queries": ["capital of France", "Paris"],
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The options that name a file of questions and a corpus."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, rows in {"corpus": CORPUS, "questions": [QUESTION]}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"tasks": str(tmp_path / "questions.jsonl"), "corpus": str(tmp_path / "corpus.jsonl")}


def play(env, seed=0, **options):
    """The infos of the gold's episode."""
    env.reset(seed=seed, options=options)
    return [env.step(action)[4] for action in env.unwrapped.gold()]


def test_gymnasium_makes_the_invented_world():
    env = gymnasium.make(SEARCH, **TINY)
    assert isinstance(env.unwrapped, SearchEnv) and isinstance(env.unwrapped.tasks[0], QATask)
    for seed in range(8):
        infos = play(env, seed)
        assert infos[-1]["em"] == 1.0 and infos[-1]["recall"]["3"] == 1.0 and infos[-1]["used_tool"]


def test_the_world_is_made_once_and_searched_by_all():
    one, other = (make_search(split=split, hops=[1, 2], **TINY) for split in ("train", "test"))
    tools = [env.toolbox.tools["search"] for env in (one, other)]
    assert tools[0].retriever is tools[1].retriever and tools[0] is not tools[1]
    assert make_search(hops=[1, 2], **TINY).tasks is one.tasks is not other.tasks
    one.close()
    assert play(other)[-1]["em"] == 1.0
    assert make_search(seed=1, **TINY).reset(seed=0)[0] != make_search(**TINY).reset(seed=0)[0]


def test_hops_choose_the_questions():
    for hops in (1, [4]):
        env = make_search(hops=hops, **TINY)
        assert {len(env.tasks[i].queries) for i in range(20)} == {
            hops if isinstance(hops, int) else 4
        }


@pytest.mark.parametrize("format", ["tags", "hermes"])
def test_the_worlds_expert_answers_from_what_it_is_shown(format):
    env = make_search(format=format, **TINY)
    expert = env.expert()
    assert isinstance(expert, SearchExpert) and env.fork().expert is env.expert
    total = 0.0
    for task in range(10):
        observation, _ = env.reset(options={"task": task})
        while env.live:
            observation, reward, *_ = env.step(expert.act(observation))
            total += reward
    assert total >= 9


def test_files_of_questions_and_passages(files):
    env = make_search(**files, k=1)
    infos = play(env)
    assert [info.get("recall") for info in infos] == [{"1": 0.5}, {"1": 1.0}, {"1": 1.0}]
    assert infos[-1]["score"] == 1.0 and env.expert is None
    env.reset(seed=0)
    assert env.step("<answer>la seine</answer>")[1] == 1.0


def test_a_server_is_searched_and_closed_with_the_environment(files):
    corpus = files.pop("corpus")
    with serve(open_index(corpus), port=0) as url:
        for backend in (None, "search-r1"):
            env = make_search(**files, url=url, backend=backend)
            assert play(env)[-1]["recall"] == {"1": 1.0, "3": 1.0}
            env.close()
        env.reset(seed=0)
        assert env.step("<search>Paris</search>")[4]["outcome"] == "tool_error"


def test_a_server_that_goes_away_is_no_reward(files):
    corpus = files.pop("corpus")
    with serve(open_index(corpus), port=0) as url:
        env = make_search(**files, url=url, timeout=1.0)
    env.reset(seed=0)
    assert env.step("<search>Paris</search>")[4]["outcome"] == "tool_error"
    env.close()


def test_visits_are_off_unless_asked_for():
    assert list(make_search(**TINY).toolbox.tools) == ["search"]
    env = make_search(visit=True, **TINY)
    assert list(env.toolbox.tools) == ["search", "visit"]
    env.reset(seed=0)
    text, reward, *_, info = env.step("<visit>http://2130706433/</visit>")
    assert "blocked" in text and reward == 0.0 and info["tool_status"] == "rejected"


def test_limits_reach_the_search():
    env = make_search(k=2, passage_chars=40, max_query=9, max_turns=3, system="Find it.", **TINY)
    search = env.toolbox.tools["search"]
    assert (search.k, search.passage_chars, search.max_query, env.max_turns) == (2, 40, 9, 3)
    assert env.reset()[1]["messages"][0]["content"].startswith("Find it.\nTo call search")
    text, *_ = env.step(f"<search>{env.tasks[0].queries[0]}</search>")
    assert "its first 9 were searched" in text and "Doc 3" not in text and "…" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"corpus": "c.jsonl"},
            "corpus is 'c.jsonl', but the questions are about the invented world; leave it out",
        ),
        ({"url": "http://x"}, "url is 'http://x', but the questions are about the invented world"),
        ({"backend": "elastic"}, "backend is 'elastic', but the questions are about"),
        ({"bad_rows": 3}, "bad_rows is 3, but the questions are about the invented world"),
        ({"holdout": 0.1}, "holdout is 0.1, but the questions are about"),
        ({"hops": 5}, "hops is 5; choose one or several of 1, 2, 3, 4"),
        ({"size": "tinny"}, "unknown size 'tinny' of a world; did you mean 'tiny'"),
        ({"split": "dev"}, "split is 'dev'; the splits are train, valid, test"),
        ({"k": 0}, "k is 0; it must be an int of at least 1"),
        ({"k": 30}, "k is 30 and passage_chars is 1000: a search could show"),
        ({"format": "fenced"}, "fenced"),
        ({"max_turns": 0}, "max_turns is 0"),
        ({"tasks": "FILE"}, "corpus is None and url is None; name one of the two to search"),
        (
            {"tasks": "FILE", "corpus": "c", "url": "u"},
            "corpus is 'c' and url is 'u'; name one of the two",
        ),
        (
            {"tasks": "FILE", "corpus": "CORPUS", "backend": "elastic"},
            "backend is 'elastic', but the file .* is searched",
        ),
        (
            {"tasks": "FILE", "corpus": "CORPUS", "hops": 2},
            "hops is 2, but the questions come from",
        ),
        (
            {"tasks": "FILE", "corpus": "CORPUS", "seed": 0},
            "seed is 0, but the questions come from",
        ),
        (
            {"tasks": "FILE", "url": "http://x", "backend": "bm25"},
            "unknown back end 'bm25'; a server speaks search-r1 or",
        ),
        (
            {"tasks": "FILE", "url": "http://x", "backend": "elastic"},
            "index is None, .*; name the one to search",
        ),
        ({"tasks": "FILE", "url": "x"}, "'x' is no address of a server"),
        (
            {"tasks": "hotpot", "corpus": "CORPUS"},
            "unknown task set 'hotpot'; did you mean 'hotpotqa'",
        ),
        ({"tasks": "FILE", "corpus": "FILE"}, "questions.jsonl"),
    ],
)
def test_a_bad_option_is_named_with_its_value_and_what_would_do(files, options, words):
    named = {"FILE": files["tasks"], "CORPUS": files["corpus"]}
    with pytest.raises(ValueError, match=words):
        make_search(
            **{
                name: named.get(value, value) if isinstance(value, str) else value
                for name, value in options.items()
            }
        )


def test_a_file_that_is_not_there_is_named(files):
    for name in files:
        with pytest.raises(FileNotFoundError, match=r"absent\.jsonl"):
            make_search(**files | {name: "absent.jsonl"})


def test_a_server_that_is_down_is_said_at_once(files):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # held, so that nobody else listens there
        port = silent.getsockname()[1]
        for backend, index in (("search-r1", None), ("elastic", "wiki")):
            with pytest.raises(ValueError, match=rf"http://127\.0\.0\.1:{port}/.*; start "):
                make_search(
                    files["tasks"], url=f"http://127.0.0.1:{port}", backend=backend, index=index
                )


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    qa_make._make_world.cache_clear()  # else it was made before
    with pytest.raises(ValueError, match=r'pip install "turngym\[search\]"'):
        registry.make(SEARCH, **TINY)


def test_the_room_is_imported_without_what_only_some_need():
    heavy = ("torch", "transformers", "sympy", "httpx", "bm25s", "datasets", "numba")
    code = f"import sys, turngym, turngym.envs.qa; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=os.environ
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
    made = f"import sys, gymnasium, turngym; gymnasium.make({SEARCH!r}, size='tiny'); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", made], capture_output=True, text=True, env=os.environ
    )
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr


@pytest.mark.parametrize("name", ["gold", "fork", "snapshot", "journal", "canary"])
def test_files_and_tool_calls_keep_the_contract_too(name, files):
    (clause,) = [clause for clause in CLAUSES if clause.name == name]
    result = run(clause, Subject(SEARCH, files | {"format": "hermes"}))
    assert result.ok and "not checked" not in result.note, result.problem


def test_turngym_names_the_environment():
    assert (
        next(entry for entry in registry.ENVS if entry.id == SEARCH).entry_point
        == "turngym.envs.qa:make_search"
    )
