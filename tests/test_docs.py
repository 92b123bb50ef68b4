"""What README, CONTRIBUTING and the pages of docs name exists, and their commands are those of the program."""

import ast
import contextlib
import io
import json
import re
import tomllib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import tyro

import turngym
from turngym import __main__ as cli
from turngym.agents.check.clauses import CLAUSES
from turngym.tests.support.pages import (
    PAGES,
    ROOT,
    blocks,
    commands,
    named_commands,
    names,
    names_of,
    tables,
)
from turngym.training.methods import GROUP
from turngym.training.runs.config import TrainConfig, to_toml

LANGUAGES = {"python", "sh", "toml", "json", "text", "jinja"}
PLACES = {
    "RECIPE": "math-python"
}  # what a command names in place of a file that is read as the command is parsed
FOREIGN = {  # options of pip, torchrun, vLLM, a benchmark, systemd-run and loggers
    *(
        "--no-deps",
        "--nproc-per-node",
        "--nnodes",
        "--real",
        "--trainings",
        "--model",
        "--enable-lora",
        "--max-loras",
        "--max-lora-rank",
    ),
    *("--enable-prefix-caching", "--logprobs-mode", "--no-enable-chunked-prefill"),
    *("--user", "--scope", "--pty", "--no-deps", "--logdir", "--project"),
}


@cache
def help_of(*command: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as left:
        cli.main([*command, "--help"])
    assert left.value.code == 0
    return out.getvalue()


# --- blocks of code


def test_every_block_says_what_it_is():
    assert [str(block) for block in blocks() if block.language not in LANGUAGES] == []
    for page, text in PAGES.items():
        assert len(re.findall(r"^ *```", text, re.M)) == 2 * sum(
            block.page == page for block in blocks()
        ), page
        assert (
            re.findall(r"^    turngym .*", re.sub(r"```.*?```", "", text, flags=re.S), re.M) == []
        ), page


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_every_command_is_one_of_the_program(block, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    parse = tyro.cli

    def parsed(*args: object, **options: object) -> SimpleNamespace:
        parse(*args, **options)
        return SimpleNamespace(run=lambda: 0)

    monkeypatch.setattr(tyro, "cli", parsed)
    lines = commands(block)
    assert lines or "turngym" not in block.text or "pip install" in block.text
    for words in lines:
        if "--resume" in words:  # whose folder is read as the command is parsed
            folder = Path(words[words.index("--out") + 1])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.toml").write_text(to_toml(TrainConfig(), {}))
        with pytest.raises(SystemExit) as left:
            cli.main([PLACES.get(word, word) for word in words])
        assert left.value.code == 0, words


def test_extras_exist():
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        name
        for text in PAGES.values()
        for found in re.findall(r"turngym\[([\w,]+)\]", text)
        for name in found.split(",")
    }
    assert named and named <= known.keys()


def test_toml_and_json_can_be_read():
    for block in blocks("toml"):
        tomllib.loads(block.text)
    for block in blocks("json"):
        json.loads(block.text)


# --- what the pages name


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_that_a_sentence_names_exists(page):
    for name, *words in named_commands(page):
        if name.isupper() or name == "COMMAND":
            continue
        area = [word for word in words[:1] if name == "verify" and word[0].islower()]
        text = help_of(name, *area)
        assert [
            word for word in words if re.fullmatch(r"--[a-z-]+", word) and word not in text
        ] == [], (name, words)


def test_every_option_belongs_to_a_command():
    names = {name for page in PAGES for name, *_ in named_commands(page)}
    names |= {words[0] for block in blocks("sh") for words in commands(block)}
    assert {
        "train",
        "compare",
        "eval",
        "play",
        "check",
        "replay",
        "audit",
        "verify",
        "methods",
        "doctor",
    } <= names
    known = {option for name in names for option in re.findall(r"--[a-z-]+", help_of(name))}
    for area in ("household", "methods", "sandbox", "search", "suites"):
        known |= set(re.findall(r"--[a-z-]+", help_of("verify", area)))
    named = {
        option
        for text in PAGES.values()
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)
    }
    assert named - known - FOREIGN == set()


def test_the_page_of_commands_has_every_one():
    listed = re.search(r"\{([\w,-]+)\}", help_of())[1].split(",")
    assert sorted(names(tables("docs/commands.md")["Commands: command"])) == sorted(listed)
    assert sorted(re.findall(r"^## `(.+)`", PAGES["docs/commands.md"], re.M)) == sorted(listed)


def test_the_page_on_the_contract_has_every_clause():
    rows = re.findall(r"^\| ([a-z-]+) \|", PAGES["docs/contract.md"], re.M)
    assert [name for name in rows if name != "clause"] == [clause.name for clause in CLAUSES]


def test_every_make_target_exists():
    targets = re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text(), re.M)
    named = {
        name for text in PAGES.values() for name in re.findall(r"`?\bmake ([\w-]+)(?=\s+#|`)", text)
    }
    assert named and named <= set(targets)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_and_file_exists(page):
    text = re.sub(r"```.*?```", "", PAGES[page], flags=re.S)
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    roots = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert roots == []
    files = re.findall(
        r"(?<![\w./-])(?:tools|envs|agents|training|tests|benchmarks|docs)/[\w./-]*", PAGES[page]
    )
    assert [name for name in files if not (ROOT / name.rstrip(".")).exists()] == []


def test_every_heading_that_a_link_names_exists():
    headings = {
        page: [
            re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-")
            for line in re.findall("^#+ (.*)$", text, re.M)
        ]
        for page, text in PAGES.items()
    }
    for page, text in PAGES.items():
        for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", text):
            named = (
                str(((ROOT / page).parent / link).resolve().relative_to(ROOT.resolve()))
                if link
                else page
            )
            assert anchor in headings[named], (page, link, anchor)


@pytest.mark.parametrize("page", PAGES)
def test_every_module_and_name_exists(page):
    for name in set(re.findall(r"\bturngym(?:\.[A-Za-z_]\w*)+", PAGES[page])) - {GROUP}:
        found = turngym
        for depth, part in enumerate(name.split(".")[1:], 2):
            if not hasattr(found, part):
                names_of(".".join(name.split(".")[:depth]))
            found = getattr(found, part, None) or object()
    for code in (block.text for block in blocks("python") if block.page == page):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turngym"):
                named = {alias.name for alias in node.names}
                missing = named - names_of(
                    node.module
                )  # a module is no name of its package until it is imported
                assert {
                    name for name in missing if find_spec(f"{node.module}.{name}") is None
                } == set()
