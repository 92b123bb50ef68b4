"""Environment ids, and the factories that make them.

Importing `turngym` registers the ids with Gymnasium. Other packages declare theirs as entry points of the group
`turngym.envs`: the name is the id, the value `module:factory`. They are registered without importing the module, so a
broken one is an error only when it is made. What no package declares is named with its module: `module:Class`,
`module:factory`, or as in Gymnasium `module:ID`, where importing the module registers the id. `file.py:factory` is
another way to write it, for a file in or below the current folder.
"""

import contextlib
import copy
import inspect
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs

from ..tools.plugins import declared, load, load_module, place
from . import choices
from .outcomes import Outcome, StopReason
from .question.env import QuestionEnv
from .tasks import did_you_mean
from .text_env import TextEnv

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


LONGEST = 300  # characters of a value that an error shows


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
