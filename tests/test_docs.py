"""What README, CONTRIBUTING and the pages of docs name exists, and the examples of the README run."""

import ast
import contextlib
import importlib
import io
import re
from functools import cache
from pathlib import Path

import pytest
import torch

import turngym
from turngym import __main__ as cli
from turngym.agents.check.clauses import CLAUSES

ROOT = Path(turngym.__file__).parent
FILES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md")))
PAGES = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in FILES}
PYTHON = {page: re.findall(r"```python\n(.*?)```", text, re.S) for page, text in PAGES.items()}
COMMAND = re.compile(r"(?:^|[\s/])turngym ([a-z][a-z-]*(?: .*)?)$")
FOREIGN = {  # options of torchrun, of vLLM and of a benchmark
    *("--nproc-per-node", "--nnodes", "--real", "--model", "--enable-lora", "--max-loras", "--max-lora-rank"),
    *("--enable-prefix-caching", "--logprobs-mode", "--no-enable-chunked-prefill"),
}


def block(word: str) -> str:
    (found,) = [text for text in PYTHON["README.md"] if word in text]
    return found


def commands(text: str) -> list[list[str]]:
    """The commands of turngym in a page's code, as words from the name of the command on."""
    fenced = re.findall(r"```(?:sh)?\n(.*?)```", text, re.S)
    indented = re.findall(r"^    .*$(?:\n    .*$)*", text, re.M)
    lines = [line for code in fenced + indented for line in code.replace("\\\n", " ").splitlines()]
    lines += [code.replace("\n", " ") for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
    found = [COMMAND.search(line.partition("#")[0].strip()) for line in lines]
    return [match[1].split() for match in found if match]


@cache
def help_of(*command: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as left:
        cli.main([*command, "--help"])
    assert left.value.code == 0
    return out.getvalue()


# --- the README's examples


def test_the_environment_example_runs_and_prints_a_reward(capsys):
    exec(block("gymnasium.make"), {})
    assert re.search(r"^1\.0 answered done$", capsys.readouterr().out, re.M)


def test_the_training_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    text = block("TrainConfig")
    short = text.replace("steps=5, eval_tasks=32", "steps=1, eval_tasks=2, prompts=2, group=2, max_tokens=8, threads=1")
    assert short != text
    exec(short, {})
    torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert out.count("held-out success") == 2 and re.search(r"^1 [\d.]+ [\d.]+$", out, re.M)
    assert (tmp_path / "runs" / "readme" / "summary.json").is_file()


def test_the_example_of_the_tool_and_the_grader_runs(capsys):
    exec(block("PythonTool("), {})
    assert capsys.readouterr().out == "ok {2: 3, 3: 2, 5: 1}\n\n1.0 numeric\n"


def test_every_python_block_of_the_readme_is_run():
    shown = [block("gymnasium.make"), block("PythonTool("), block("TrainConfig")]
    assert sorted(PYTHON["README.md"]) == sorted(shown)


# --- what the pages name


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_exists(page):
    for name, *words in commands(PAGES[page]):
        area = [word for word in words[:1] if name == "verify" and word[0].islower()]
        text = help_of(name, *area)
        assert [word for word in words if re.fullmatch(r"--[a-z-]+", word) and word not in text] == [], (name, words)


def test_every_option_belongs_to_a_command():
    names = {name for page in PAGES.values() for name, *_ in commands(page)}
    assert {"train", "compare", "eval", "play", "check", "replay", "audit", "verify", "methods", "doctor"} <= names
    known = {option for name in names for option in re.findall(r"--[a-z-]+", help_of(name))}
    for area in ("household", "sandbox", "search"):
        known |= set(re.findall(r"--[a-z-]+", help_of("verify", area)))
    named = {option for text in PAGES.values() for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)}
    assert named - known - FOREIGN == set()


def test_the_page_on_the_contract_has_every_clause():
    rows = re.findall(r"^\| ([a-z-]+) \|", PAGES["docs/contract.md"], re.M)
    assert [name for name in rows if name != "clause"] == [clause.name for clause in CLAUSES]


def test_every_make_target_exists():
    targets = re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text(), re.M)
    named = {name for text in PAGES.values() for name in re.findall(r"`?\bmake ([\w-]+)(?=\s+#|`)", text)}
    assert named and named <= set(targets)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_and_file_exists(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", PAGES[page])
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
    files = re.findall(r"\b(?:tools|envs|agents|training|tests|benchmarks|docs)/[\w./-]*", PAGES[page])
    assert [name for name in files if not (ROOT / name.rstrip(".")).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_module_and_name_exists(page):
    for name in set(re.findall(r"\bturngym(?:\.[A-Za-z_]\w*)+", PAGES[page])):
        found = turngym
        for depth, part in enumerate(name.split(".")[1:], 2):
            if not hasattr(found, part):
                importlib.import_module(".".join(name.split(".")[:depth]))
            found = getattr(found, part)
    for code in PYTHON[page]:
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turngym"):
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
