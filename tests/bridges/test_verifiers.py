"""As verifiers.md has it: `vf-eval` plays an environment of ours through its OpenEnv taskset; the model is a stub."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.filterwarnings("default")  # what these packages warn of is theirs
CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "print(%s)"}}\n</tool_call>'
TASKS = 4


def stub(golds):
    """A model that computes its answer with the tool and, on every second question, gives another one."""
    from fastapi import FastAPI, Request
    from fastapi.responses import StreamingResponse

    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> StreamingResponse:
        asked = await request.json()
        said = [
            json.loads(one["content"])["observation"]["text"]
            for one in asked["messages"]
            if one["role"] == "user"
        ]
        place, gold = golds[said[0]]
        text = (
            CALL % repr(gold)
            if len(said) == 1
            else f"\\boxed{{{said[-1] if place % 2 == 0 else -1}}}"
        )
        head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": asked["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        parts = [
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {"role": "assistant", "content": text},
                        "finish_reason": None,
                    }
                ]
            },
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": usage},
        ]
        lines = [*(json.dumps(head | part) for part in parts), "[DONE]"]
        return StreamingResponse(
            (f"data: {line}\n\n" for line in lines), media_type="text/event-stream"
        )

    return app


def test_an_evaluation_has_the_rewards_of_the_environment(serve, tmp_path):
    from turngym.envs.adapters.openenv import app
    from turngym.envs.registry import make

    local, golds = make("turngym/MathPython-v0", difficulty=1, split="test"), {}
    for index in range(TASKS):
        text, _ = local.reset(options={"task": index})
        golds[text] = index, local.task.gold
    config = {
        "model": "stub",
        "push": False,
        "rich": None,
        "output_dir": str(tmp_path),
        "run": {"name": "one"},
        "client": {"base_url": serve(stub(golds)) + "/v1", "api_key_var": "NO_KEY"},
        "env": {
            "taskset": {
                "id": "openenv",
                "base_url": serve(app("turngym/MathPython-v0", difficulty=1)),
                "resets": [{"split": "test", "index": index} for index in range(TASKS)],
            },
            "player": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}},
        },
    }
    (tmp_path / "eval.json").write_text(json.dumps(config))
    command = [Path(sys.executable).parent / "vf-eval", "@", tmp_path / "eval.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    traces = [
        json.loads(line) for line in (tmp_path / "one" / "traces.jsonl").read_text().splitlines()
    ]
    assert len(traces) == TASKS, done.stderr
    found = {
        one["task"]["data"]["reset"]["index"]: one["traces"][0]["rewards"]["openenv_reward"][
            "score"
        ]
        for one in traces
    }
    assert found == {index: float(index % 2 == 0) for index in range(TASKS)}
