"""An evaluation of a model behind the URL of a real vLLM server, with structured tool calls and with calls in text."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turngym.agents.cli.settings import EndpointOptions, EngineChoice, SamplingOptions
from turngym.agents.endpoint import EndpointRefused
from turngym.agents.engines.vllm.server import VllmServer
from turngym.agents.evaluation import run as evaluate
from turngym.agents.evaluation.scores import Episode, Report
from turngym.agents.journal.replay import replay_journal
from turngym.agents.journal.trees import from_json, read_sealed, read_trees
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import load_policy

TOOLS = ("enable-auto-tool-choice=true", "tool-call-parser=hermes")


@pytest.fixture(scope="module", params=["tools", "no tools"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the tiny policy without an adapter, with and without structured tool calls."""
    options = (
        "enforce-eager=true",
        "max-num-seqs=64",
        "block-size=32",
        *(TOOLS if request.param == "tools" else ()),
    )
    log = tmp_path_factory.mktemp("endpoint") / "vllm.log"
    python = os.environ.get("TURNGYM_VLLM_PYTHON")
    with VllmServer(
        load_policy(TINY), log=log, options=options, python=python and Path(python), start=1500
    ) as server:
        yield server.url


def evaluated(
    url: str, out: Path, *, resume: bool = False, tool_calls: str = "structured"
) -> Report:
    endpoint = EndpointOptions("policy", url, tool_calls=tool_calls, concurrency=8)  # type: ignore[arg-type]
    options = {"split": "test", "difficulty": (1, 2)}
    sampling = SamplingOptions(max_tokens=48, temperature=0.7)
    prepared = evaluate.prepare(
        "turngym/MathPython-v0",
        options,
        episodes=24,
        out=out,
        sampling=sampling,
        resume=resume,
        endpoint=endpoint,
    )
    return evaluate.run(prepared)


@pytest.mark.parametrize("url", ["no tools"], indirect=True)
def test_a_server_without_tool_calls_says_so(url: str, tmp_path: Path) -> None:
    with pytest.raises(
        EndpointRefused,
        match=r"answered 400: .*; if it takes no tools, .* or add --tool-calls text",
    ):
        evaluated(url, tmp_path)


@pytest.mark.parametrize("url", ["tools"], indirect=True)
def test_a_real_server_is_evaluated_and_not_asked_twice(url: str, tmp_path: Path) -> None:
    report = evaluated(url, tmp_path)
    rows = list(read_sealed(tmp_path / "requests.jsonl"))
    assert (report.failed, report.episodes, report.usage["model"]) == (0, 24, "policy")
    assert report.usage["requests"] == len(rows) and report.usage["completion_tokens"] > 24
    called = [row for row in rows if row["answer"]["choices"][0]["message"].get("tool_calls")]
    heard = [row for row in rows if row["request"]["messages"][-1]["role"] == "tool"]
    assert called and heard
    assert [path.divergence for path in replay_journal(tmp_path / "trees.jsonl")] == [None] * 24
    whole = (tmp_path / "trees.jsonl").read_bytes()
    (tmp_path / "trees.jsonl").unlink()
    assert evaluated(url, tmp_path, resume=True).usage == report.usage
    assert (tmp_path / "trees.jsonl").read_bytes() == whole


@pytest.mark.parametrize("url", ["no tools"], indirect=True)
def test_an_evaluation_by_token_ids_goes_on_there(url: str, tmp_path: Path) -> None:
    def prepare(resume: bool) -> evaluate.Evaluation:
        choice, sampling = EngineChoice("vllm", (url,)), SamplingOptions(max_tokens=24)
        settings = {
            "episodes": 6,
            "samples": 2,
            "sampling": sampling,
            "choice": choice,
            "out": tmp_path,
        }
        return evaluate.prepare(
            "turngym/Math-v0", {"split": "test"}, "tiny", resume=resume, **settings
        )  # type: ignore[arg-type]

    left = iter(range(4))

    def stop(episode: Episode) -> None:
        if next(left, None) is None:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        evaluate.run(prepare(False), stop)
    kept = [from_json(data) for data in read_sealed(tmp_path / "episodes.jsonl")]
    assert evaluate.run(prepare(True)).episodes == 12 and len(kept) > 4
    texts = {
        (tree.task, leaf.branch): tree.turns[leaf.node].text
        for tree in read_trees(tmp_path / "trees.jsonl")
        for leaf in tree.leaves
    }
    assert all(
        texts[tree.task, tree.leaves[0].branch] == tree.turns[tree.leaves[0].node].text
        for tree in kept
    )


def test_calls_in_text_need_nothing_of_the_server(url: str, tmp_path: Path) -> None:
    report = evaluated(url, tmp_path, tool_calls="text")
    assert (report.failed, report.episodes) == (0, 24)
    assert all(
        "<python>" in json.dumps(tree.turns[0].info)
        for tree in read_trees(tmp_path / "trees.jsonl")
    )
    assert not any("tools" in row["request"] for row in read_sealed(tmp_path / "requests.jsonl"))
