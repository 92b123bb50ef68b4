"""`BFCL-v0` on a small package of the same form; the real one is counted by `make test-suites`."""

import json
import sys

import pytest

from turngym.envs import EnvFailure, registry
from turngym.envs.suites import bfcl, calls, make_bfcl

FUNCTIONS = [
    {"name": "add", "description": "Adds.", "parameters": {"properties": {}, "required": ["a"]}},
    {"name": "total", "description": "Tells.", "parameters": {"properties": {}, "required": []}},
]
QUESTION = [[{"role": "user", "content": "Add 1."}], [{"role": "user", "content": "And 2?"}], []]
CONVERSATION = {
    "id": "multi_turn_base_1",
    "question": QUESTION,
    "initial_config": {"MathAPI": {}},
    "involved_classes": ["MathAPI"],
    "missed_function": {"2": ["total"]},
}
GOLD = [["add(a=1)"], [], ["add(a=2)", "total()"]]
CODE = """
class MathAPI:
    def __init__(self): self.sum = 0
    def add(self, a): self.sum += a; return {"sum": self.sum}
    def total(self): return self.sum
"""
CHECKER = """
from bfcl_eval.constants.model_config import MODEL_CONFIG_MAPPING
class Language: PYTHON = "python"
def ast_checker(functions, calls, gold, language, category, model):
    assert not MODEL_CONFIG_MAPPING[model].underscore_to_dot
    return {"valid": calls == [{"add": {"a": 1}}], "error_type": "value_error"}
"""
PROMPTS = """
PROMPT_STYLE_TEMPLATES = {"classic": {"persona": "P.", "task": "T.", "tool_call_no_tag": "{output_format}{param_types}",
                                      "multiturn_behavior": "M.", "available_tools": "{format}: {functions}"}}
OUTPUT_FORMAT_MAPPING = {"python": "[f()]"}
PROMPT_TEMPLATE_MAPPING = {"plaintext": "{persona}{task}{tool_call_format}{multiturn_behavior}{available_tools}"}
DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING = "{functions}: what now?"
"""


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory):
    """A package of the name and form of the official one, with one task a category."""
    folder = tmp_path_factory.mktemp("site")
    files = {
        "data/BFCL_v4_simple_python.json": {
            "id": "simple_python_0",
            "question": QUESTION[:1],
            "function": FUNCTIONS,
        },
        "data/possible_answer/BFCL_v4_simple_python.json": {
            "id": "simple_python_0",
            "ground_truth": [{"add": {"a": [1], "b": ["", 2]}}],
        },
        "data/BFCL_v4_irrelevance.json": {
            "id": "irrelevance_0",
            "question": QUESTION[:1],
            "function": FUNCTIONS,
        },
        "data/BFCL_v4_multi_turn_base.json": CONVERSATION,
        "data/possible_answer/BFCL_v4_multi_turn_base.json": {
            "id": CONVERSATION["id"],
            "ground_truth": GOLD,
        },
        "__init__.py": "",
        "constants/__init__.py": "",
        "constants/default_prompts.py": PROMPTS,
        "eval_checker/__init__.py": "",
        "eval_checker/ast_eval/__init__.py": "",
        "eval_checker/ast_eval/ast_checker.py": CHECKER,
        "eval_checker/multi_turn_eval/__init__.py": "",
        "eval_checker/multi_turn_eval/func_source_code/__init__.py": "",
        "eval_checker/multi_turn_eval/func_source_code/math_api.py": CODE,
        "data/multi_turn_func_doc/math_api.json": FUNCTIONS,
    }
    for name, text in files.items():
        path = folder / "bfcl_eval" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = text if isinstance(text, list) else [text]
        path.write_text(text if isinstance(text, str) else "\n".join(map(json.dumps, rows)))
    cached = (bfcl._find_data_folder, bfcl._load_tasks, bfcl._load_documents, calls._import_checker)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
        for name in [name for name in sys.modules if name.partition(".")[0] == "bfcl_eval"]:
            del sys.modules[name]
        for one in cached:
            one.cache_clear()


def played(env, *replies):
    env.reset(seed=0)
    for reply in replies:
        *_, reward, terminated, truncated, info = env.step(reply)
    assert terminated or truncated
    assert reward == info["score"] == (not info["error_type"])
    return info["error_type"]


def test_gold_is_right_and_is_all_that_a_single_reply_needs():
    env = make_bfcl("simple_python", split="all")
    _, info = env.reset(seed=0)
    assert [message["role"] for message in info["messages"]] == ["system", "user"]
    assert "Adds. Note that" in info["messages"][0]["content"]
    assert env.gold() == ["[add(a=1)]"]  # `b` may be left out
    assert played(env, "[add(a=1)]") == ""
    assert played(env, "[add(a=2)]") == "value_error"
    assert played(env, "I do not know.") == "ast_decoder:decoder_failed"
    assert (
        "bfcl_eval.constants.model_config" not in sys.modules
    )  # the stand-in is for the checker alone


@pytest.mark.parametrize(
    ("reply", "error"), [("Nothing fits.", ""), ("[]", ""), ("[f()]", "decoder_success")]
)
def test_where_no_function_fits_a_call_is_wrong(reply, error):
    assert played(make_bfcl("irrelevance"), reply).endswith(error)


@pytest.mark.parametrize(
    ("replies", "error"),
    [
        (["[add(a=1)]", "Done.", "Done.", "[add(a=2), total()]", "Done."], ""),
        (["[add(a=1)]", "Done.", "[total()]", "Done.", "[add(a=2)]", "[total()]", "Done."], ""),
        (["[add(a=1)]", "Done.", "Done.", "Done."], "multi_turn:empty_turn_model_response"),
        (
            ["[add(a=3)]", "Done.", "Done.", "[add(a=0), total()]", "Done."],
            "multi_turn:instance_state_mismatch",
        ),
        (
            ["[add(a=1)]", "Done.", "Done.", "[add(a=2)]", "Done."],
            "multi_turn:execution_response_mismatch",
        ),
        ([*["[total()]"] * 21], "multi_turn:force_terminated"),
    ],
)
def test_a_conversation_is_judged_by_state_and_results(replies, error):
    assert played(make_bfcl("multi_turn_base"), *replies) == error


def test_functions_that_come_later_are_not_shown_before():
    env = make_bfcl("multi_turn_base")
    _, info = env.reset(seed=0)
    assert '"total"' not in info["messages"][0]["content"]
    assert env.step("[add(a=1)]")[0] == repr(
        [{"role": "tool", "name": "add(a=1)", "content": '{"sum": 1}'}]
    )
    assert env.step("Done.")[0] == "And 2?"
    assert "'total'" in env.step("Done.")[0]
    assert env.gold() == ["[add(a=2), total()]", "Done."]


def test_a_fork_has_objects_of_its_own():
    env = make_bfcl("multi_turn_base")
    env.reset(seed=0)
    twin = env.fork()
    env.step("[add(a=5)]")
    assert "'{\"sum\": 1}'" in twin.step("[add(a=1)]")[0]


def test_objects_that_cannot_be_made_are_no_fault_of_the_agent(monkeypatch):
    monkeypatch.setitem(calls.MODULES, "MathAPI", "absent")
    with pytest.raises(EnvFailure, match="multi_turn_base_1: its objects cannot be made"):
        make_bfcl("multi_turn_base").reset(seed=0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"category": "simple"}, "category is 'simple'"),
        ({"category": ()}, "category is empty"),
        ({"split": "half"}, "split is 'half'; the splits are"),
        ({"kind": "simple_python"}, "takes no option 'kind'"),
    ],
)
def test_mistakes_are_named(options, error):
    with pytest.raises(ValueError, match=error):
        make_bfcl(**options)


def test_without_the_package_the_line_that_installs_it_is_said(monkeypatch):
    monkeypatch.setattr(bfcl, "find_spec", lambda name: None)
    bfcl._find_data_folder.cache_clear(), bfcl._load_tasks.cache_clear()
    with pytest.raises(ValueError, match=r"not installed: pip install --no-deps bfcl-eval=="):
        registry.make("turngym/BFCL-v0")
    bfcl._find_data_folder.cache_clear()


def test_splits_share_no_task_and_variants_of_a_conversation_stay_together():
    for kind, splits in bfcl.SPLITS.items():
        assert not set(splits["train"]) & set(splits["valid"])
        for number in (*splits["train"], *splits["valid"], 10**6):
            ids = (
                [f"{kind}_{number}"]
                if kind != "multi_turn"
                else [f"{c}_{number}" for c in bfcl.CONVERSATIONS]
            )
            found = {
                tuple(
                    split for split in ("train", "valid", "test") if bfcl._is_in_split(one, split)
                )
                for one in ids
            }
            assert len(found) == 1
            assert len(found.pop()) == 1
