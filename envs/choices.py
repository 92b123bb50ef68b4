"""What a file may choose: for each option of each kind of file, a rule for its value.

A file is a journal, a recipe, a suite, or the `config.toml` of a run: somebody else may have
written it. It says which tasks, numbers and words something has. It never says which code is
imported, which files are written, which servers are asked, or that a limit is wider than by
default. An option without a rule is refused.

The tables `OPTIONS`, `SETTINGS` and `EVALUATION` have the rules; the functions above them make
rules. `COMMAND` marks options that only the present command may choose; `registry.toml` says why.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..tools.python import LEVELS

Rule = Callable[[Any], bool]
"""A function that returns whether a file may choose a value; None is an option that is not set."""
MOST_TEXT = 20_000  # characters of a text in a prompt
MOST_ITEMS = 1000  # of a list
LARGEST = 10**9  # of numbers that limit nothing
MOST_SECONDS = 10  # of a call of a tool
MOST_MIB = 512  # of memory of a tool
# The files of tasks that turngym itself reads. Parquet and folders are read by other packages,
# whose readers may be open to attack, so only the command chooses them.
_TASK_FILE = re.compile(r"[^\0]{1,4000}\.(jsonl?|csv|tsv)(\.gz|\.xz)?", re.DOTALL)


# -- rules and makers of rules
# -----------------------------------------------------------------------


def is_none(value: Any) -> bool:
    """Return whether an option is not set."""
    return value is None


def is_flag(value: Any) -> bool:
    """Return whether a value is True or False, or not set."""
    return value is None or isinstance(value, bool)


def is_false(value: Any) -> bool:
    """Return whether a value is False, or not set."""
    return value is None or value is False


def is_empty(value: Any) -> bool:
    """Return whether a value is an empty text or list, or not set."""
    return value is None or (isinstance(value, str | list | tuple) and not value)


def is_default_level(value: Any) -> bool:
    """Return whether a value is the default isolation level, the strongest."""
    return isinstance(value, str) and value == LEVELS[0]


def is_task_file(value: Any) -> bool:
    """Return whether a value is the path of a file of JSON lines, JSON or CSV.

    The file may be in any folder: it is read as data, line by line and within limits, and its
    content reaches only the policy and the folder of the run. It need not exist yet, but a folder
    or a device of this name is refused.
    """
    if not isinstance(value, str) or not _TASK_FILE.fullmatch(value):
        return False
    try:
        path = Path(value).expanduser()
        return path.is_file() or not path.exists()
    except OSError:  # the path is too long, or may not be read
        return False


def is_task_name(value: Any) -> bool:
    """Return whether a value can name a data set: a word that is not the name of a folder."""
    is_word = text_like(r"[\w-]*")
    if not is_word(value):
        return False
    names_folder = isinstance(value, str) and value and Path(value).is_dir()
    return not names_folder


def is_inside_folders(value: Any, *folders: Path) -> bool:
    """Return whether a path leads into the current folder or one of `folders`.

    Only the text of the path is read: links are not followed.
    """
    path = Path(value)
    if ".." in path.parts or str(value).startswith("~"):
        return False
    if not path.is_absolute():
        return True
    allowed_folders = [Path.cwd(), *(folder.absolute() for folder in folders)]
    return any(path.is_relative_to(folder) for folder in allowed_folders)


def is_harmless(value: Any) -> bool:
    """Return whether a value is harmless in an option of any meaning.

    It is a flag, or one or several numbers or texts. A text must not look like a path ("a/b",
    "a:b") or a module ("a.b"), and has no control characters.
    """
    is_number = one_or_several(number_between(high=float("inf")))
    no_module = r"(?!\w\.\w)"
    no_path_or_control = r"[^:/\\\x00-\x1f]"
    is_text = one_or_several(text_like(rf"(?:{no_module}{no_path_or_control})*", longest=2000))
    return is_flag(value) or is_number(value) or is_text(value)


def number_between(low: float = -LARGEST, high: float = LARGEST) -> Rule:
    """Return the rule for a number from `low` to `high`."""

    def is_number_between(value: Any) -> bool:
        if value is None:
            return True
        # `bool` is a subclass of `int`, but a flag is not meant as a number.
        is_number = isinstance(value, int | float) and type(value) is not bool
        return is_number and low <= value <= high

    return is_number_between


def text_like(pattern: str = r"[\w-]*", longest: int = 200) -> Rule:
    """Return the rule for a text that matches a pattern; by default a word: no path and no module.

    Args:
        pattern: A regular expression for the whole text.
        longest: The longest text, in characters.
    """
    compiled_pattern = re.compile(pattern, re.DOTALL)

    def is_text_like(value: Any) -> bool:
        if value is None:
            return True
        if not isinstance(value, str) or len(value) > longest:
            return False
        return compiled_pattern.fullmatch(value) is not None

    return is_text_like


def one_or_several(rule: Rule) -> Rule:
    """Return the rule for one value or a list of values, each of which `rule` allows."""

    def is_one_or_several(value: Any) -> bool:
        if not isinstance(value, list | tuple):
            return rule(value)
        if len(value) > MOST_ITEMS:
            return False
        return all(item is not None and rule(item) for item in value)

    return is_one_or_several


def any_of(*rules: Rule) -> Rule:
    """Return the rule for a value that at least one of several rules allows."""
    return lambda value: any(rule(value) for rule in rules)


# -- the options of environments
# ---------------------------------------------------------------------

COMMAND: Rule = is_none
WORD = text_like()
WORDS = one_or_several(text_like(r"[\w, -]*"))
NUMBER = number_between()
NUMBERS = one_or_several(NUMBER)
# Options of the environments of turngym, and of every environment with tasks.
OPTIONS: Mapping[str, Rule] = {
    "tasks": any_of(
        is_task_name, text_like(r"reasoning-gym:[\w-]+(,[\w-]+)*", longest=2000), is_task_file
    ),
    "shots": any_of(number_between(0, 64), is_task_file),
    "corpus": any_of(is_none, is_task_file),
    "games": COMMAND,
    "url": is_empty,
    "visit": is_false,
    # `reserved_choices` allows more: a tool that a package declares, and that is imported already.
    "tools": is_empty,
    "packages": is_empty,
    "level": is_default_level,
    "memory_mb": number_between(high=MOST_MIB),
    "timeout": number_between(high=MOST_SECONDS),
    "max_output": number_between(0, 1 << 20),
    "max_turns": number_between(0, 100_000),
    "max_query": number_between(0, 100_000),
    "passage_chars": number_between(0, 100_000),
    "k": number_between(0, 100),
    "system": any_of(is_flag, text_like(".*", longest=MOST_TEXT)),
    "split": WORD,
    "difficulty": NUMBERS,
    "families": WORDS,
    "holdout": number_between(0, 1),
    "config": text_like(r"[\w.-]*"),
    "problem_field": text_like(r"[\w .-]*"),
    "answer_field": text_like(r"[\w .-]*"),
    "bad_rows": NUMBER,
    "answers": WORD,
    "format": WORD,
    "backend": WORD,
    "index": WORD,
    "hops": NUMBERS,
    "size": any_of(WORD, NUMBER),
    "seed": NUMBER,
    "task_types": WORDS,
    "admissible": is_flag,
    "text": WORD,
    "category": WORDS,
    "task": one_or_several(text_like(r"[\w ()-]*")),
    "sets": WORD,
    "variation": NUMBERS,
    "simplification": text_like(r"[\w, -]*"),
    "reward": WORD,
    "domain": WORD,
    "held": is_flag,
    "user": text_like(r"[\w./-]*"),
}
# Options that mean the same in every package, so that their rules hold for environments of other
# packages as well. The other options of those may mean anything.
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


# -- the settings of trainings and evaluations
# -------------------------------------------------------


def is_checked_elsewhere(value: Any) -> bool:
    """Return True, as the rule of settings that `reserved_choices` or their own code checks."""
    return True


CHECKED_ELSEWHERE: Rule = is_checked_elsewhere
# Settings of a training run.
SETTINGS: Mapping[str, Rule] = {
    "env": CHECKED_ELSEWHERE,
    "method": CHECKED_ELSEWHERE,
    "option": CHECKED_ELSEWHERE,  # each by `OPTIONS`
    "tasks": OPTIONS["tasks"],
    "difficulty": OPTIONS["difficulty"],
    "shots": OPTIONS["shots"],
    # A model is checked before anything of it is loaded; the path in a recipe has to be near it.
    "policy": text_like(".*", longest=4096),
    "chat_template": is_empty,
    "server": is_empty,
    "server_option": CHECKED_ELSEWHERE,  # see `PLAIN_SERVER_OPTIONS`
    # TensorBoard writes into the folder of the run; other loggers send the run away.
    "log": text_like(r"(tensorboard)?"),
    "out": is_empty,
    "resume": is_false,
    "engine": WORD,
    "lora_dtype": WORD,
    "dtype": WORD,
    "device": text_like(r"[\w:]*"),
    "targets": one_or_several(text_like(r"[\w.]*")),
    "shuffle_rewards": is_flag,
    "from_optimizer": is_flag,
    "slow_dtype": is_flag,
    "checkpointing": is_flag,
    "compile": is_flag,
    "steps": NUMBER,
    "token_budget": NUMBER,
    "updates": NUMBER,
    "minibatches": NUMBER,
    "eval_every": NUMBER,
    "prompts": NUMBER,
    "group": NUMBER,
    "max_tokens": NUMBER,
    "micro_tokens": NUMBER,
    "eval_tasks": NUMBER,
    "seed": NUMBER,
    "threads": number_between(0, 1024),
    "lr": NUMBER,
    "lr_end": NUMBER,
    "clip_norm": NUMBER,
    "temperature": NUMBER,
    "rank": NUMBER,
    "alpha": number_between(high=float("inf")),
    "turn_deadline": number_between(high=float("inf")),
    "episode_deadline": number_between(high=float("inf")),
    "step_deadline": number_between(high=float("inf")),
    "stall_after": number_between(high=float("inf")),
    "retries": NUMBER,
}
# Options of a vLLM server that turngym starts, each of which may be a number or a flag.
PLAIN_SERVER_OPTIONS = (
    "gpu-memory-utilization",
    "max-num-seqs",
    "max-num-batched-tokens",
    "tensor-parallel-size",
    "enforce-eager",
)
# Settings of an evaluation. A suite may set those that are not marked with `COMMAND`.
EVALUATION: Mapping[str, Rule] = {
    "env": SETTINGS["env"],
    "option": SETTINGS["option"],
    "tasks": SETTINGS["tasks"],
    "difficulty": SETTINGS["difficulty"],
    "shots": SETTINGS["shots"],
    "temperature": SETTINGS["temperature"],
    "max_tokens": SETTINGS["max_tokens"],
    "split": WORD,
    "episodes": NUMBER,
    "samples": NUMBER,
    "top_p": NUMBER,
    "k": NUMBERS,
    "suite": COMMAND,
    "policy": COMMAND,
    "chat_template": COMMAND,
    "model": COMMAND,
    "base_url": COMMAND,
    "api_key_env": COMMAND,
    "tool_calls": COMMAND,
    "concurrency": COMMAND,
    "retries": COMMAND,
    "timeout": COMMAND,
    "token_budget": COMMAND,
    "request": COMMAND,
    "seed": COMMAND,
    "quiet": COMMAND,
    "return_reasoning": COMMAND,
    "finish_reason": COMMAND,
    "device": COMMAND,
    "dtype": COMMAND,
    "threads": COMMAND,
    "slow_dtype": COMMAND,
    "engine": COMMAND,
    "server": COMMAND,
    "server_option": COMMAND,
    "out": COMMAND,
    "resume": COMMAND,
    "against": COMMAND,
    "source": COMMAND,
    "base": COMMAND,
}
