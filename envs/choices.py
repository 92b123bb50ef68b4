"""What a file may choose: each option of each kind of file is harmless by its form, bounded, or the command's alone.

A file is a journal, a recipe, a suite, or the `config.toml` of a run: somebody else may have written it. It says which
tasks, numbers and words something has. It never says which code is imported, which files are written, which servers are
asked, or that a limit is wider than by default. An option that stands in no table here is refused.

`COMMAND` marks what the present command alone may choose; why stands in `registry.toml`.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..tools.python import LEVELS

Rule = Callable[[Any], bool]
"""Whether a value is one that a file may choose."""
MOST_TEXT = 20_000  # characters of a text that stands in a prompt
MOST_ITEMS = 1000  # of a list
LARGEST = 10**9  # of numbers that bound nothing
MOST_SECONDS, MOST_MIB = 10, 512  # of a tool
# Parquet and folders are read by other packages, so they are the command's.
_TASK_FILE = re.compile(r"[^\0]{1,4000}\.(jsonl?|csv|tsv)(\.gz|\.xz)?", re.DOTALL)


def is_none(value: Any) -> bool:
    return value is None


def is_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def is_false(value: Any) -> bool:
    return value is None or value is False


def is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | tuple) and not value)


def number(low: float = -LARGEST, high: float = LARGEST) -> Rule:
    """Return the rule for a number from `low` to `high`."""

    def holds(value: Any) -> bool:
        return value is None or (
            isinstance(value, int | float) and type(value) is not bool and low <= value <= high
        )

    return holds


def text(pattern: str = r"[\w-]*", most: int = 200) -> Rule:
    """Return the rule for a text of a form; without one it is a word, which is no path and no module."""
    known = re.compile(pattern, re.DOTALL)

    def holds(value: Any) -> bool:
        return value is None or (
            isinstance(value, str) and len(value) <= most and known.fullmatch(value) is not None
        )

    return holds


def several(rule: Rule) -> Rule:
    """Return the rule for one value or a list of values, each of which `rule` allows."""

    def holds(value: Any) -> bool:
        if isinstance(value, list | tuple):
            return len(value) <= MOST_ITEMS and all(
                item is not None and rule(item) for item in value
            )
        return rule(value)

    return holds


def either(*rules: Rule) -> Rule:
    """Return the rule for a value that one of several rules allows."""
    return lambda value: any(rule(value) for rule in rules)


def is_level(value: Any) -> bool:
    return isinstance(value, str) and value == LEVELS[0]


def is_task_file(value: Any) -> bool:
    """Return whether a value is the path of a file of JSON lines, JSON or CSV; what is there has to be a plain file.

    It is read as data, line by line and within limits. What it says reaches the policy and the folder of the run, and
    nothing else, as servers and loggers are the command's choice. So it may lie anywhere.
    """
    if not isinstance(value, str) or not _TASK_FILE.fullmatch(value):
        return False
    try:
        return Path(value).expanduser().is_file() or not Path(value).expanduser().exists()
    except OSError:
        return False


def is_task_name(value: Any) -> bool:
    """Return whether a value is a word, as the names of data sets are, and no folder has that name."""
    return text(r"[\w-]*")(value) and not (
        isinstance(value, str) and value and Path(value).is_dir()
    )


def is_near(value: Any, *folders: Path) -> bool:
    """Return whether a path stays, by its name, below the current folder or one of `folders`."""
    path = Path(value)
    if ".." in path.parts or str(value).startswith("~"):
        return False
    return not path.is_absolute() or any(
        path.is_relative_to(folder.absolute()) for folder in (Path.cwd(), *folders)
    )


WORD, WORDS, INTEGER, INTEGERS = text(), several(text(r"[\w, -]*")), number(), several(number())
COMMAND: Rule = is_none
# Options of the environments of turngym, and of every environment with tasks.
OPTIONS: Mapping[str, Rule] = {
    "tasks": either(is_task_name, text(r"reasoning-gym:[\w-]+(,[\w-]+)*", 2000), is_task_file),
    "shots": either(number(0, 64), is_task_file),
    "corpus": either(is_none, is_task_file),
    "games": COMMAND,
    "url": is_empty,
    "visit": is_false,
    "tools": is_empty,  # see also `registry.py`: what a package declares, and was imported, may be named
    "packages": is_empty,
    "level": is_level,
    "memory_mb": number(high=MOST_MIB),
    "timeout": number(high=MOST_SECONDS),
    "max_output": number(0, 1 << 20),
    "max_turns": number(0, 100_000),
    "max_query": number(0, 100_000),
    "passage_chars": number(0, 100_000),
    "k": number(0, 100),
    "system": either(is_flag, text(".*", MOST_TEXT)),
    "split": WORD,
    "difficulty": INTEGERS,
    "families": WORDS,
    "holdout": number(0, 1),
    "config": text(r"[\w.-]*"),
    "problem_field": text(r"[\w .-]*"),
    "answer_field": text(r"[\w .-]*"),
    "bad_rows": INTEGER,
    "answers": WORD,
    "format": WORD,
    "backend": WORD,
    "index": WORD,
    "hops": INTEGERS,
    "size": either(WORD, INTEGER),
    "seed": INTEGER,
    "task_types": WORDS,
    "admissible": is_flag,
    "text": WORD,
    "category": WORDS,
    "task": several(text(r"[\w ()-]*")),
    "sets": WORD,
    "variation": INTEGERS,
    "simplification": text(r"[\w, -]*"),
    "reward": WORD,
    "domain": WORD,
    "held": is_flag,
    "user": text(r"[\w./-]*"),
}
# What an environment of another package means by them is not known, but these words have one meaning.
SHARED = (
    "tasks",
    "shots",
    "corpus",
    "games",
    "url",
    "visit",
    "tools",
    "packages",
    "level",
    "memory_mb",
    "timeout",
)
# Settings of a training run. What is chosen by name (environments, methods) has its own check in `reserved_of`.
BY_NAME: Rule = lambda value: True  # noqa: E731
SETTINGS: Mapping[str, Rule] = {
    "env": BY_NAME,
    "method": BY_NAME,
    "option": BY_NAME,  # each by `OPTIONS`
    **{name: OPTIONS[name] for name in ("tasks", "difficulty", "shots")},
    "policy": text(
        ".*", 4096
    ),  # a model is checked before anything of it is loaded; a recipe's stays near
    "chat_template": is_empty,
    "server": is_empty,
    "server_option": BY_NAME,  # see `PLAIN_SERVER_OPTIONS`
    "log": text(r"(tensorboard)?"),  # which writes into the folder of the run; others send it away
    "out": is_empty,
    "resume": is_false,
    **dict.fromkeys(("engine", "lora_dtype", "dtype"), WORD),
    "device": text(r"[\w:]*"),
    "targets": several(text(r"[\w.]*")),
    **dict.fromkeys(
        ("shuffle_rewards", "from_optimizer", "slow_dtype", "checkpointing", "compile"), is_flag
    ),
    **dict.fromkeys(
        ("steps", "token_budget", "updates", "minibatches", "eval_every", "prompts"), INTEGER
    ),
    **dict.fromkeys(("group", "max_tokens", "micro_tokens", "eval_tasks", "seed"), INTEGER),
    "threads": number(0, 1024),
    **dict.fromkeys(("lr", "lr_end", "clip_norm", "temperature", "rank"), INTEGER),
    "alpha": number(high=float("inf")),
    **dict.fromkeys(
        ("turn_deadline", "episode_deadline", "step_deadline", "stall_after"),
        number(high=float("inf")),
    ),
    "retries": INTEGER,
}
# Options of a vLLM server that turngym starts, which may be a number or a flag.
PLAIN_SERVER_OPTIONS = (
    *(
        "gpu-memory-utilization",
        "max-num-seqs",
        "max-num-batched-tokens",
        "tensor-parallel-size",
        "enforce-eager",
    ),
)
# Settings of an evaluation: a suite sets those that are not the command's.
EVALUATION: Mapping[str, Rule] = {
    **{
        name: SETTINGS[name]
        for name in ("env", "option", "tasks", "difficulty", "shots", "temperature", "max_tokens")
    },
    "split": WORD,
    **dict.fromkeys(("episodes", "samples", "top_p"), INTEGER),
    "k": INTEGERS,
    **dict.fromkeys(
        ("suite", "policy", "chat_template", "model", "base_url", "api_key_env", "tool_calls"),
        COMMAND,
    ),
    **dict.fromkeys(
        ("concurrency", "retries", "timeout", "token_budget", "request", "seed", "quiet"), COMMAND
    ),
    **dict.fromkeys(("return_reasoning", "finish_reason"), COMMAND),
    **dict.fromkeys(
        ("device", "dtype", "threads", "slow_dtype", "engine", "server", "server_option"), COMMAND
    ),
    **dict.fromkeys(("out", "resume", "against", "source", "base"), COMMAND),
}


def is_plain(value: Any) -> bool:
    """Return whether a value of an unknown option is plain: a number, a flag, a text that is no path and no module."""
    plain = several(text(r"(?:(?!\w\.\w)[^:/\\\x00-\x1f])*", 2000))
    return is_flag(value) or several(number(high=float("inf")))(value) or plain(value)
