"""Results and exports, read by the real packages: Inspect AI, jsonschema, pyarrow; intervals beside statsmodels."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow.parquet
import pytest
from inspect_ai.analysis import samples_df
from inspect_ai.log import read_eval_log
from statsmodels.api import OLS

from turngym.agents.cli.settings import EndpointOptions, SamplingOptions
from turngym.agents.evaluation import run as evaluate
from turngym.agents.evaluation.exports import export
from turngym.agents.evaluation.results import SCHEMA
from turngym.agents.evaluation.scores import interval, summarize
from turngym.envs.registry import make
from turngym.tests.support.chat_server import ChatServer, Scripted

PYTHON, SEARCH = "turngym/MathPython-v0", "turngym/Search-v0"
pytestmark = pytest.mark.filterwarnings("default")  # what these packages warn of is theirs


def played(out: Path, env: str = PYTHON, policy: str = "expert", **rest) -> dict:
    options = {"split": "test", **rest.pop("options", {})}
    evaluate.run(evaluate.prepare(env, options, policy, samples=2, out=out, **rest))
    return json.loads((out / "eval.json").read_text())


@pytest.fixture
def served(tmp_path):
    """An evaluation of a model behind a URL, one of whose episodes failed."""
    env = make(PYTHON, split="test", difficulty=1)
    tasks = evaluate.pick_tasks(range(len(env.tasks)), 6, 0)
    known = Scripted(
        {env.tasks[i].prompt: (env.tasks[i].solution, env.tasks[i].gold) for i in tasks}
    )
    with ChatServer(known, lambda number, asked: "400" if number == 5 else "").run() as url:
        endpoint = EndpointOptions(model="m", base_url=url, timeout=20.0, concurrency=1)
        sampling = SamplingOptions(max_tokens=64)
        options = {"difficulty": 1}
        played(
            tmp_path / "e",
            policy="",
            episodes=6,
            endpoint=endpoint,
            sampling=sampling,
            options=options,
        )
    return tmp_path / "e"


def test_results_of_every_kind_fit_the_schema(served, tmp_path):
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    found = json.loads((served / "eval.json").read_text())
    assert found["usage"]["model"] == "scripted-1" and found["failed"] == 1
    kinds = [
        found,
        played(tmp_path / "math", episodes=2),
        played(tmp_path / "search", SEARCH, episodes=2),
    ]
    kinds += [played(tmp_path / "house", "turngym/Household-v0", "observer", episodes=2)]
    for result in kinds:
        jsonschema.validate(result, schema)
    for name, wrong in {"eval": 2, "success": {"value": 2.0}, "by_task": [], "more": 1}.items():
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**found, name: wrong}, schema)


def test_inspect_reads_the_log_and_counts_the_same(served):
    result = json.loads((served / "eval.json").read_text())
    path = export(served, "inspect")
    log = read_eval_log(str(path))
    assert (log.status, log.eval.task, log.eval.model) == ("success", PYTHON, "turngym/m")
    assert (log.results.total_samples, log.results.completed_samples) == (12, 11)
    metrics = log.results.scores[0].metrics
    assert (
        metrics["accuracy"].value == result["success"]["value"]
        and metrics["mean"].value == result["reward"]
    )
    scores = [sample.scores["reward"].as_float() for sample in log.samples if sample.scores]
    assert len(scores) == 11 and np.mean(scores) == pytest.approx(result["reward"], abs=1e-12)
    assert [sample.error is not None for sample in log.samples].count(True) == 1
    assert {(sample.id, sample.epoch) for sample in log.samples} == {
        (task["id"], epoch) for task in result["by_task"] for epoch in (1, 2)
    }
    table = samples_df(str(path))
    assert len(table) == 12 and {"id", "epoch", "score_reward"} <= set(table.columns)


def test_parquet_counts_the_same(served):
    result = json.loads((served / "eval.json").read_text())
    table = pyarrow.parquet.read_table(export(served, "parquet")).to_pandas()
    scored = table[table["score"].notna()]
    assert len(table) == 12 and scored["score"].mean() == pytest.approx(result["reward"], abs=1e-12)
    assert scored.groupby("task")["success"].mean().mean() == pytest.approx(
        result["success"]["value"], abs=1e-12
    )
    assert scored["tokens"].mean() == pytest.approx(result["tokens"], abs=1e-12)
    assert table["messages"].map(len).min() >= 2


@pytest.mark.parametrize("seed", range(20))
def test_the_standard_error_is_statsmodels_clustered_one(seed):
    """The interval is Wilson's at the number of samples p (1-p) / SE², SE clustered by task."""
    from turngym.tests.verify.evaluation import episode

    rng = np.random.default_rng(seed)
    tasks, samples = int(rng.integers(3, 40)), int(rng.integers(1, 9))
    won = rng.random((tasks, samples)) < rng.beta(1, 1, (tasks, 1))
    report = summarize([episode(task, bool(one)) for task in range(tasks) for one in won[task]])
    groups = np.repeat(np.arange(tasks), samples)
    fit = OLS(won.astype(float).ravel(), np.ones(won.size)).fit(
        cov_type="cluster", cov_kwds={"groups": groups}
    )
    p, error = float(fit.params[0]), float(fit.bse[0])
    z2, n = 1.959963984540054**2, float(np.clip(p * (1 - p) / error**2, 1, won.size))
    roots = sorted(np.roots([1 + z2 / n, -2 * p - z2 / n, p * p]).real)
    assert report.success.value == pytest.approx(p, abs=1e-12)
    assert [report.success.low, report.success.high] == pytest.approx(roots, abs=1e-9)
    assert report.success == interval(won.mean(1).tolist(), won.size)
