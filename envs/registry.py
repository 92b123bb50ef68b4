"""Environment ids and their factories, the options they are made with, and the isolation of their tools.

Importing `turngym` registers the ids with Gymnasium. Other packages declare theirs as entry points of the group
`turngym.envs`: the name is the id, the value `module:factory`. They are registered without importing the module, so a
broken one is an error only when it is made. What no package declares is named with its module: `module:Class`,
`module:factory`, or as in Gymnasium `module:ID`, where importing the module registers the id. `file.py:factory` is
another way to write it, for a file in or below the current folder.
"""

import contextlib
import copy
import inspect
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs

from ..tools.files import parse_toml
from ..tools.plugins import GROUP as TOOLS
from ..tools.plugins import declared, is_foreign, load, load_module, place, tool_names
from ..tools.python import LEVELS, require
from . import choices
from .core import Outcome, StopReason, TextEnv
from .question import QuestionEnv
from .tasks import did_you_mean

GROUP = "turngym.envs"


@dataclass(frozen=True)
class Entry:
    """One environment: its id, what makes it, a line for `turngym envs`, the package it comes from, what it needs."""

    id: str
    entry_point: str
    summary: str
    package: str = "turngym"
    needs: str = (
        ""  # what has to be there that no package brings; without it `make` says what to do
    )


_TABLES = tomllib.loads(Path(__file__).with_name("registry.toml").read_text("utf-8"))
ENVS = tuple(Entry(**row) for row in _TABLES["envs"])


class Limited(gymnasium.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Adds `stop` and `outcome` to the last step of an episode that Gymnasium's TimeLimit below it ends."""

    def __init__(self, env: gymnasium.Env[str, str]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if truncated and "stop" not in info:
            info = {**info, "stop": str(StopReason.MAX_TURNS), "outcome": str(Outcome.TRUNCATED)}
        return observation, reward, terminated, truncated, info


def entries() -> tuple[Entry, ...]:
    """Return the environments of turngym, then those that installed packages declare, by id and package."""
    return (
        *ENVS,
        *(Entry(one.name, one.spec, one.summary, package=one.package) for one in declared(GROUP)),
    )


def register_all() -> None:
    """Register every environment of `entries()` that Gymnasium does not know yet."""
    known = entries()
    for entry in known:
        if entry.id not in gymnasium.registry:
            with contextlib.suppress(
                gymnasium.error.Error
            ):  # an id that Gymnasium refuses: `make` says so
                _register(entry, known)


def module_id(env_id: str) -> str:
    """Return `module:name` for `file.py:name`, which journals have, and any other id as it is.

    Raises ValueError if the file is not in or below the current folder, or its name is no module's.
    """
    file, colon, name = env_id.partition(":")
    if not colon or not file.endswith(".py"):
        return env_id
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(
            f"{env_id}: the file is not below the current folder; run this in its folder: cd {path.parent}"
        )
    parts = path.with_suffix("").parts
    if odd := next((part for part in parts if not part.isidentifier()), ""):
        plain = re.sub(r"\W", "_", odd)
        raise ValueError(f"{env_id}: Python cannot import {odd!r}; rename it, such as to {plain!r}")
    return f"{'.'.join(parts)}:{name}"


def make(env_id: str, **kwargs: Any) -> TextEnv:
    """Make the bare environment (no wrappers) for rollouts, evaluation and play.

    Raises ValueError where the id is unknown or its declaration broken, or the environment does not take one of
    `kwargs`; TypeError where the environment is not a `TextEnv`.
    """
    env_id = module_id(env_id)
    spec = spec_of(env_id)
    creator = _creator(spec)
    options, takes_any = _options(creator)
    for name in kwargs:
        if name not in options and not takes_any:
            known = f"its options are {', '.join(options)}" if options else "it takes none"
            raise ValueError(
                f"{env_id} takes no option {name!r}; {did_you_mean(name, options)}{known}"
            )
    try:
        env = creator(**{**spec.kwargs, **kwargs})
    except TypeError as error:
        own = getattr(creator, "__name__", "")
        lacks_option = "required" in str(error) and str(error).startswith(
            (f"{own}()", f"{own}.__init__()")
        )
        hint = _near_argument(error) + place(error)
        if lacks_option:
            hint = "; give it a default, or name it with --option"
        raise ValueError(f"{env_id} cannot be made with {kwargs}: {error}{hint}") from error
    if env is None:
        raise TypeError(
            f"{env_id} returns None; it has to return the environment: does it lack a `return`?"
        )
    if inspect.iscoroutine(env):
        env.close()
        raise TypeError(f"{env_id} is async; write it as a plain function: def, not async def")
    if inspect.isclass(env):
        raise TypeError(
            f"{env_id} returns the class {env.__name__}; return an instance: {env.__name__}(…)"
        )
    if not isinstance(env, TextEnv):
        raise TypeError(
            f"{env_id} makes a {type(env).__name__}; turngym supports TextEnv environments only"
        )
    if "max_turns" not in vars(env):
        raise TypeError(f"{type(env).__name__}.__init__ has to call super().__init__(max_turns)")
    env.spec = copy.deepcopy(
        spec
    )  # as `gymnasium.make` does: what made an environment can be read from it
    env.spec.id = env_id
    env.spec.kwargs |= kwargs
    return env


def _near_argument(error: TypeError) -> str:
    """Return the argument of `QuestionEnv` that a call of it may have misspelled, behind a semicolon; else nothing."""
    call = re.search(
        r"QuestionEnv\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error)
    )
    if call is None:
        return ""
    arguments = [*inspect.signature(QuestionEnv).parameters]
    return f"; {did_you_mean(call[1], arguments)}its arguments are {', '.join(arguments)}"


def defaults_of(env_id: str) -> dict[str, Any]:
    """Return the options of an environment and the values that they have when left out. Raises as `spec_of` does."""
    spec = spec_of(env_id)
    options = inspect.signature(_creator(spec)).parameters.values()
    return {one.name: one.default for one in options if one.default is not one.empty} | spec.kwargs


def spec_of(env_id: str) -> EnvSpec:
    """Return what Gymnasium knows of an environment, from which `gymnasium.make` makes it; registered where it is not.

    Raises ValueError where the id is unknown or its declaration broken, or its module cannot be imported.
    """
    env_id = module_id(env_id)
    if env_id in gymnasium.registry:
        return gymnasium.registry[env_id]
    module, colon, name = env_id.partition(":")
    if not colon:
        _register_late(env_id)
    elif name.isidentifier() or not name:
        made = load(env_id, "environment")
        if not callable(made) or (inspect.isclass(made) and not issubclass(made, TextEnv)):
            what = (
                f"the class {made.__name__}"
                if inspect.isclass(made)
                else f"a {type(made).__name__}"
            )
            fix = "name a class that derives from TextEnv, or a function that makes one"
            raise ValueError(f"{env_id} is {what}; {fix}")
        gymnasium.register(env_id, entry_point=env_id)
    else:
        load_module(module, f"the environment {env_id!r}")
        if name not in gymnasium.registry:
            hint = did_you_mean(name, gymnasium.registry)
            fix = f"name a class in it ({module}:CLASS), or call gymnasium.register(id={name!r}, …) there"
            raise ValueError(f"importing {module} registers no environment {name!r}; {hint}{fix}")
        return gymnasium.registry[name]
    return gymnasium.registry[env_id]


def takes(env_id: str, option: str) -> bool:
    """Return whether an environment names an option among its parameters: `**options` may lead anywhere.

    Raises as `make` does.
    """
    names, _ = _options(_creator(spec_of(env_id)))
    return option in names


def _options(creator: Callable[..., Any]) -> tuple[list[str], bool]:
    options = inspect.signature(creator).parameters.values()
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [one.name for one in options if one.kind not in variable], any(
        one.kind is variable[0] for one in options
    )


def _creator(spec: EnvSpec) -> Callable[..., Any]:
    if callable(spec.entry_point):
        return spec.entry_point
    if spec.entry_point is None:
        raise ValueError(
            f"{spec.id} has no entry point: Gymnasium makes it as a vector only, and turngym needs one"
        )
    package = next(
        (f" of the package {entry.package}" for entry in entries() if entry.id == spec.id), ""
    )
    creator: Callable[..., Any] = load(spec.entry_point, f"environment {spec.id}{package}")
    return creator


def _register_late(env_id: str) -> None:
    """Register what was installed after `import turngym`; say what is wrong with an id that cannot be registered."""
    if env_id.endswith(".py"):
        raise ValueError(f"{env_id} is a file; name the factory in it, such as {env_id}:make")
    known = entries()
    if (entry := next((entry for entry in known if entry.id == env_id), None)) is None:
        ids = [entry.id for entry in known]
        names = f"{did_you_mean(env_id, [*ids, *gymnasium.registry])}turngym has {', '.join(ids)}"
        raise ValueError(
            f"unknown environment {env_id!r}; {names}; one in a file of your own is named file.py:factory"
        )
    try:
        _register(entry, known)
    except gymnasium.error.Error as error:
        raise ValueError(
            f"the package {entry.package} declares {env_id!r}, which Gymnasium refuses: {error}"
        ) from None


def _register(entry: Entry, known: Iterable[Entry]) -> None:
    """Register an environment, or in place of a broken declaration a factory that says what is wrong with it."""
    packages = [other.package for other in known if other.id == entry.id]
    wrong = ""
    if len(packages) > 1 and entry not in ENVS:  # an id of turngym's own is nobody else's
        wrong = f"{entry.id} is declared by the packages {' and '.join(packages)}; uninstall all but one"
    elif not re.fullmatch(r"[\w.]+:\w+", entry.entry_point):
        declared_by = f"{entry.id} is declared by the package {entry.package}"
        wrong = f"{declared_by} as {entry.entry_point!r}; it needs module:factory"
    point = partial(_refuse, wrong) if wrong else entry.entry_point
    gymnasium.register(entry.id, entry_point=point, additional_wrappers=(Limited.wrapper_spec(),))


def _refuse(wrong: str, **options: Any) -> NoReturn:
    raise ValueError(wrong)


@dataclass(frozen=True)
class EnvOptions:
    """Options of the environment."""

    tasks: str | None = None
    """The tasks: a file (JSONL, JSON, CSV, Parquet; fields `problem, answer`, `question, answer` or as verl has them),
    a folder in the layout of the Hugging Face hub, a data set (`gsm8k`, `math`, `math500`, `aime24`, `aime25`, `amc23`,
    `hmmt25`, `brumo25`, `cmimc25`, `minerva`, `olympiadbench`, `omni-math`, `dapo-math`, `deepscaler`, `hotpotqa`,
    `nq`, `2wiki`, `musique`, `bamboogle`, `triviaqa`, `popqa`, or `OWNER/NAME` on the Hugging Face hub), or
    `reasoning-gym:NAME,NAME`. By default the environment generates tasks."""
    difficulty: tuple[int, ...] | None = None
    """Difficulties of generated tasks, 1 to 5."""
    shots: int | str = 0
    """Worked examples in front of a question: how many of the expert's, or a JSONL file of `messages`."""
    option: tuple[str, ...] = ()
    """Other options of the environment as `name=value`; the value is TOML, and a bare word is a string. They add to
    those of a recipe, and change the ones that they name."""

    def kwargs(self) -> dict[str, Any]:
        """Return the constructor arguments.

        Raises ValueError where an `option` has no `=`, or something is given twice.
        """
        shots = None if self.shots == 0 else self.shots
        fields = {"shots": shots, "tasks": self.tasks, "difficulty": self.difficulty}
        values = {name: value for name, value in fields.items() if value is not None}
        for name, value in named_values("option", self.option).items():
            if name in values:
                raise ValueError(
                    f"{name} is given twice, by --{name} and by --option {name}={value}; give it once"
                )
            values[name] = value
        return values

    def over(self, options: Iterable[str]) -> "EnvOptions":
        """Return these options with those of a recipe, `options`, that these do not name.

        A `difficulty`, `tasks` or `shots` among the options of a command stands in place of the recipe's field.
        Raises ValueError where an option is given twice, or has no `=`.
        """
        values = named_values("option", self.option)
        others = [item for item in options if item.partition("=")[0] not in values]
        return EnvOptions(
            tasks=None if "tasks" in values else self.tasks,
            difficulty=None if "difficulty" in values else self.difficulty,
            shots=0 if "shots" in values else self.shots,
            option=(*others, *self.option),
        )


def named_values(flag: str, items: Iterable[str]) -> dict[str, Any]:
    """Return the values of `name=value`, which are TOML or bare words; `flag` names the option that has them.

    Raises ValueError where one has no `=`, or a name is given twice.
    """
    values: dict[str, Any] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if name in values:
            raise ValueError(
                f"--{flag} {name} is given twice, the second time as {item!r}; give it once"
            )
        if not equals:
            raise ValueError(
                f"--{flag} {item!r} is not of the form name=value, such as max_turns=3"
            )
        try:
            values[name] = parse_toml(f"value = {value}")["value"]
        except ValueError:  # no TOML, or too much of it
            values[name] = value
    return values


def levels_of(
    env: TextEnv,
) -> dict[str, str]:  # the isolation levels of the tools of `env` that have one, by name
    return env.toolbox.levels if isinstance(env, QuestionEnv) else {}


def check_levels(env: TextEnv) -> None:
    """Find out before an episode begins whether this machine can isolate the tools of `env` as asked.

    Raises LevelRefused where it cannot; the message says why and how to allow a weaker level.
    """
    for level in levels_of(env).values():
        if level in LEVELS:  # a tool of another package has its own
            require(level)


_WIDER: dict[str, str] = _TABLES["reserved"]
_OTHER = "is not of a form that a file may choose"
_OWN_ENVS = frozenset(entry.id for entry in ENVS)
LONGEST = 300  # characters of a value that an error shows


def reserved_choices(options: Mapping[str, Any], env_id: str = "") -> list[str]:
    """Return what of an environment and its options only the present command may choose, each as it is named there.

    That is all that `choices.OPTIONS` does not allow: an isolation level below the default by its name, and
    `name=value` of the rest. Of an environment of another package it is what reaches further by its name, and what
    could name a file or a module.
    """
    env_id = module_id(env_id)
    own = not env_id or env_id in _OWN_ENVS
    found = [level for level in _texts(options) if level in LEVELS[1:]]
    for name, value in options.items():
        if name == "packages" and not choices.is_empty(value):
            names = value.split(",") if isinstance(value, str) else map(str, _items(value))
            found += [f"packages={package.strip()}" for package in names]
        elif name == "tools":
            found += _reserved_tools(value)
        elif name == "level" and value in LEVELS[1:]:
            continue  # it is there
        elif name in choices.OPTIONS and (own or name in choices.SHARED):
            found += [] if choices.OPTIONS[name](value) else [named_choice(name, value)]
        elif own or not choices.is_plain(value):
            found.append(named_choice(name, value))
    return [*dict.fromkeys(found), *([f"env={env_id}"] if _is_foreign(env_id) else [])]


def far_choices(values: Mapping[str, Any], *folders: Path) -> list[str]:
    """Return the paths that lead away from the current folder and from `folders`, where a file that names them lies.

    For recipes and suites, which are written to be passed on; a journal and a run name what their own command named.
    """
    paths = {name: values.get(name) for name in ("tasks", "shots", "corpus", "policy")}
    texts = {name: path for name, path in paths.items() if isinstance(path, str)}
    return [
        named_choice(name, path)
        for name, path in texts.items()
        if not choices.is_near(path, *folders)
    ]


def named_choice(name: str, value: Any) -> str:
    """Return `name=value` as a command has it."""
    plain = isinstance(value, str | float | int) and not isinstance(value, bool)
    return f"{name}={value if plain else _literal(value)}"


def _literal(value: Any) -> str:
    """Return a value of JSON as TOML has it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(str(key))} = {_literal(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value, default=str)


def _reserved_tools(value: Any) -> list[str]:
    """Return the tools whose code is not imported yet; of a shape that is no list of names all of it."""
    names = [one for text in _texts(value) for one in tool_names(text)]
    found = [f"tools={one}" for one in names if is_foreign(one, TOOLS) or not choices.WORD(one)]
    flat = (
        value is None
        or isinstance(value, str)
        or all(isinstance(one, str) for one in _items(value))
    )
    return found if flat else [named_choice("tools", value), *found]


def _items(value: Any) -> list[Any]:
    """Return the items of a list; anything else is one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _texts(value: Any) -> Iterator[str]:
    left = [value]  # of nested data
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            left += value


def _is_foreign(env_id: str) -> bool:
    """Return whether an environment is of another package, and its module not imported yet, or named by its module."""
    if ":" in env_id:
        return True
    known = (entry.entry_point for entry in entries() if entry.id == env_id)
    point = getattr(gymnasium.registry.get(env_id), "entry_point", None) or next(known, None)
    module = point.partition(":")[0] if isinstance(point, str) else ""
    return bool(module) and module not in sys.modules and module.partition(".")[0] != "turngym"


def is_plugin(env_id: str) -> bool:
    """Return whether an installed package declares an environment that turngym does not have itself."""
    return env_id not in _OWN_ENVS and any(plugin.name == env_id for plugin in declared(GROUP))


def plugin_tools(options: Mapping[str, Any]) -> list[str]:
    """Return the tools among the options of an environment that installed packages declare."""
    declared_tools = {plugin.name for plugin in declared(TOOLS)}
    return [
        name
        for text in _texts(options.get("tools"))
        for name in tool_names(text)
        if name in declared_tools
    ]


def refuse_unnamed(asked: Iterable[str], allowed: Collection[str], where: str) -> None:
    """Refuse what data (a journal, a run folder, a recipe) may not choose; `where` names the data in the error.

    `asked` is what the data names and `allowed` what the present caller names himself, both as `reserved_choices` gives
    it; `name=` stands for every value, as that of the command takes its place. Raises ValueError for the first that is
    not allowed; the message says how to allow it.
    """
    for one in asked:
        name, equals, _ = one.partition("=")
        if one in allowed or f"{name}=" in allowed:
            continue
        what = f"asks for isolation level {one!r}, which is weaker than the default {LEVELS[0]!r}"
        if equals:
            most = {"memory_mb": choices.MOST_MIB, "timeout": choices.MOST_SECONDS}
            what = f"asks for {one!r:.120}, which {_WIDER.get(name, _OTHER).format(most=most.get(name))}"
        fix = f"If you trust {'its code' if name in _CODE or not equals else 'it'}, add {flag_of(one)} to the command"
        raise ValueError(f"{where} {what}; a file cannot choose that. {fix}")


_CODE = ("env", "method", "tools", "packages", "server", "server_option", "chat_template")


def flag_of(one: str) -> str:
    """Return the option of a command that allows what `reserved_choices` found."""
    name, equals, value = one.partition("=")
    if len(value) > LONGEST:
        value = f"{value[:LONGEST]}…"
    if name == "resume":
        return "--resume"
    if (name in choices.SETTINGS and name not in choices.OPTIONS) or name in ("tasks", "shots"):
        return f"--{name.replace('_', '-')} {_quoted(value)}"
    return f"--option {_quoted(f'{name}={value}' if equals else f'level={one}')}"


def _quoted(value: str) -> str:
    """Return a word for a shell."""
    return (
        shlex.quote(value)
        if value.isprintable()
        else shlex.quote(value.encode("unicode_escape").decode())
    )
