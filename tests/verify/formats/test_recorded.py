import json

import pytest

from turngym.tests.verify.formats.recorded import EXCEPTIONS, Recorded, agrees, recorded, tool_names
from turngym.tools import ToolCall


def test_every_recorded_completion_has_a_reading(shared_data):
    rows = recorded(shared_data / "tool_calls")
    counts = {style: sum(row.style == style for row in rows) for style in dict.fromkeys(row.style for row in rows)}
    # One of the 149 rows is a system prompt, no completion.
    assert counts == {"hermes": 8, "llama-json": 10, "pythonic": 6, "tags": 89, "fenced": 35}
    assert {row.where for row in rows} >= set(EXCEPTIONS)
    assert {"python", "search", "get_weather", "searchTool"} <= set(tool_names(rows))
    search = next(row for row in rows if row.where == "completions.jsonl:109")
    assert search.want == ToolCall("search", {"query": "Paul Walker's cars in Fast and Furious"})


def test_only_around_code_and_queries_blanks_are_frame():
    call = ToolCall("python", {"code": " x\n"})
    assert agrees(call, Recorded("", "tags", "", ToolCall("python", {"code": "x"})))
    assert not agrees(call, Recorded("", "hermes", "", ToolCall("python", {"code": "x"})))
    assert not agrees(None, Recorded("", "tags", "", call)) and agrees(None, Recorded("", "tags", "", None))


def test_answers_and_the_first_marker_decide(tmp_path):
    texts = {"<answer>1</answer><python>2</python>": None, "<search> a </search><python>2</python>": "search"}
    lines = [json.dumps({"format": "search_r1", "kind": "real", "text": text}) for text in texts]
    for name in ("completions", "arpo_python_result", "roll_trajectories"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        lines = lines[::-1]
    rows = [row for row in recorded(tmp_path) if row.where.startswith("arpo")]
    assert [row.want and row.want.name for row in rows] == list(texts.values())[::-1]


def test_a_missing_file_is_named_with_its_option(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"completions\.jsonl is missing; --data names the folder"):
        recorded(tmp_path)
