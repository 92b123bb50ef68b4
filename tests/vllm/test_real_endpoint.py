"""An evaluation of a model behind the URL of a real vLLM server, with structured tool calls and with calls in text."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turngym.agents import evaluate
from turngym.agents.endpoint import Refused
from turngym.agents.engines.vllm.server import VllmServer
from turngym.agents.journal import read_sealed, read_trees
from turngym.agents.policy import load_policy
from turngym.agents.replay import replay_journal
from turngym.agents.scores import Report
from turngym.agents.settings import EndpointOptions, SamplingOptions
from turngym.agents.source import TINY

TOOLS = ("enable-auto-tool-choice=true", "tool-call-parser=hermes")


@pytest.fixture(scope="module", params=["tools", "no tools"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, bool]]:
    """A server of the tiny policy without an adapter, with and without structured tool calls."""
    options = ("enforce-eager=true", "max-num-seqs=64", "block-size=32", *(TOOLS if request.param == "tools" else ()))
    log = tmp_path_factory.mktemp("endpoint") / "vllm.log"
    python = os.environ.get("TURNGYM_VLLM_PYTHON")
    with VllmServer(load_policy(TINY), log=log, options=options, python=python and Path(python), start=1500) as server:
        yield server.url, request.param == "tools"


def evaluated(url: str, out: Path, *, resume: bool = False, tool_calls: str = "structured") -> Report:
    endpoint = EndpointOptions("policy", url, tool_calls=tool_calls, concurrency=8)  # type: ignore[arg-type]
    options = {"split": "test", "difficulty": (1, 2)}
    sampling = SamplingOptions(max_tokens=48, temperature=0.7)
    prepared = evaluate.prepare(
        "turngym/MathPython-v0", options, episodes=24, out=out, sampling=sampling, resume=resume, endpoint=endpoint
    )
    return evaluate.run(prepared)


def test_a_real_server_is_evaluated_and_not_asked_twice(url: tuple[str, bool], tmp_path: Path) -> None:
    address, has_tools = url
    if not has_tools:
        with pytest.raises(Refused, match=r"answered 400: .*; if it takes no tools, .* or add --tool-calls text"):
            evaluated(address, tmp_path)
        return
    report = evaluated(address, tmp_path)
    rows = list(read_sealed(tmp_path / "requests.jsonl"))
    assert (report.failed, report.episodes, report.usage["model"]) == (0, 24, "policy")
    assert report.usage["requests"] == len(rows) and report.usage["completion_tokens"] > 24
    called = [row for row in rows if row["answer"]["choices"][0]["message"].get("tool_calls")]
    heard = [row for row in rows if row["request"]["messages"][-1]["role"] == "tool"]
    assert called and heard and report.tool_share > 0
    assert [path.divergence for path in replay_journal(tmp_path / "trees.jsonl")] == [None] * 24
    whole = (tmp_path / "trees.jsonl").read_bytes()
    (tmp_path / "trees.jsonl").unlink()
    assert evaluated(address, tmp_path, resume=True).usage == report.usage
    assert (tmp_path / "trees.jsonl").read_bytes() == whole


def test_calls_in_text_need_nothing_of_the_server(url: tuple[str, bool], tmp_path: Path) -> None:
    report = evaluated(url[0], tmp_path, tool_calls="text")
    assert (report.failed, report.episodes) == (0, 24)
    assert all("<python>" in json.dumps(tree.turns[0].info) for tree in read_trees(tmp_path / "trees.jsonl"))
    assert not any("tools" in row["request"] for row in read_sealed(tmp_path / "requests.jsonl"))
