"""Environment ids, and the factories that make them.

`make` makes an environment by its id, `spec_of` returns its spec. Importing
`turngym` registers the ids with Gymnasium. Other packages declare theirs as entry points of the
group `turngym.envs`: the name is the id, the value `module:factory`. They are registered without
importing the module, so a broken one is an error only when it is made. An environment that no
package declares is named with its module: `module:Class`, `module:factory`, or as in Gymnasium
`module:ID`, if importing the module registers the id. `file.py:factory` is another way to write
`module:factory`, for a file in or below the current folder.
"""

import contextlib
import copy
import inspect
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs

from ..tools.plugins import declared_plugins, import_object, import_user_module, user_code_place
from . import choices
from .outcomes import Outcome, StopReason
from .question.env import QuestionEnv
from .tasks import did_you_mean
from .text_env import TextEnv

GROUP = "turngym.envs"  # the group of entry points in which packages declare environments


@dataclass(frozen=True)
class Entry:
    """One environment that turngym or another package declares.

    Args:
        id: Its id in Gymnasium.
        entry_point: The factory that makes it, as `module:factory`.
        summary: A line for `turngym envs`.
        package: The package that declares it.
        needs: What it needs that installing a package does not bring; "" for nothing. If it is
            missing, `make` raises an error that says what to do.
    """

    id: str
    entry_point: str
    summary: str
    package: str = "turngym"
    needs: str = ""


_REGISTRY_TABLES = tomllib.loads(Path(__file__).with_name("registry.toml").read_text("utf-8"))
ENVS = tuple(Entry(**row) for row in _REGISTRY_TABLES["envs"])


class Limited(gymnasium.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Adds `stop` and `outcome` to the step in which Gymnasium's TimeLimit ends an episode."""

    def __init__(self, env: gymnasium.Env[str, str]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Take one turn; if TimeLimit truncates the episode, `info` says why it ended."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if truncated and "stop" not in info:  # no `TextEnv` ended the episode itself
            info = {**info, "stop": str(StopReason.MAX_TURNS), "outcome": str(Outcome.TRUNCATED)}
        return observation, reward, terminated, truncated, info


def entries() -> tuple[Entry, ...]:
    """Return the environments of turngym, then those of installed packages, by id and package."""
    plugin_entries = [
        Entry(plugin.name, plugin.spec, plugin.summary, package=plugin.package)
        for plugin in declared_plugins(GROUP)
    ]
    return (*ENVS, *plugin_entries)


def register_all() -> None:
    """Register every environment of `entries()` that Gymnasium does not know yet."""
    all_entries = entries()
    for entry in all_entries:
        if entry.id in gymnasium.registry:
            continue
        # If Gymnasium refuses an id, `make` says so: a broken package must not break the import of
        # turngym.
        with contextlib.suppress(gymnasium.error.Error):
            _register(entry, all_entries)


def module_id(env_id: str) -> str:
    """Return the id with a module in place of a file: "envs/mine.py:make" -> "envs.mine:make".

    Journals have ids of this form. Any other id is returned as it is.

    Raises:
        ValueError: The file is not in or below the current folder, or its name cannot be a
            module's.
    """
    file_name, colon, factory_name = env_id.partition(":")
    if not colon or not file_name.endswith(".py"):
        return env_id
    path = Path(file_name)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(
            f"{env_id}: the file is not below the current folder; "
            f"run this in its folder: cd {path.parent}"
        )
    module_names = path.with_suffix("").parts
    for module_name in module_names:
        if not module_name.isidentifier():
            importable_name = re.sub(r"\W", "_", module_name)
            raise ValueError(
                f"{env_id}: Python cannot import {module_name!r}; "
                f"rename it, such as to {importable_name!r}"
            )
    module = ".".join(module_names)
    return f"{module}:{factory_name}"


def make(env_id: str, **kwargs: Any) -> TextEnv:
    """Make the bare environment (no wrappers) for rollouts, evaluation and play.

    Args:
        env_id: An id, or `module:factory` and the other forms that the module's text describes.
        kwargs: Options of the environment.

    Raises:
        ValueError: The id is unknown, its declaration is broken, or the environment does not take
            one of `kwargs`.
        TypeError: The environment is not a `TextEnv`.
    """
    env_id = module_id(env_id)
    spec = spec_of(env_id)
    factory = _load_factory(spec)
    _check_option_names(env_id, factory, kwargs)
    all_options = {**spec.kwargs, **kwargs}
    try:
        product = factory(**all_options)
    except TypeError as error:
        hint = _hint_at_call_error(error, factory)
        raise ValueError(f"{env_id} cannot be made with {kwargs}: {error}{hint}") from error
    env = _require_text_env(env_id, product)
    # As after `gymnasium.make`, each environment has its own spec, with the options it has got.
    env.spec = copy.deepcopy(spec)
    env.spec.id = env_id
    env.spec.kwargs |= kwargs
    return env


def _check_option_names(
    env_id: str, factory: Callable[..., Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise ValueError, with the nearest option, if `factory` does not take one of `kwargs`."""
    options = _option_names(factory)
    if _takes_any_option(factory):
        return
    for name in kwargs:
        if name not in options:
            listed = f"its options are {', '.join(options)}" if options else "it takes none"
            raise ValueError(
                f"{env_id} takes no option {name!r}; {did_you_mean(name, options)}{listed}"
            )


def _hint_at_call_error(error: TypeError, factory: Callable[..., Any]) -> str:
    """Return advice on a TypeError that the call of a factory raised.

    Returns:
        The end of the error message. If the factory has a required option that was not given, it
        says how to give it. Otherwise it says which argument of `QuestionEnv` was misspelled, if
        any, and at which place of the user's code the error was raised.
    """
    message = str(error)
    factory_name = getattr(factory, "__name__", "")
    # Python's message about a call of the factory itself: "make() missing 1 required …".
    is_about_factory = message.startswith((f"{factory_name}()", f"{factory_name}.__init__()"))
    if "required" in message and is_about_factory:
        return "; give it a default, or name it with --option"
    return _near_argument(error) + user_code_place(error)


def _require_text_env(env_id: str, env: Any) -> TextEnv:
    """Return the product of a factory if it is an initialized `TextEnv`.

    Raises:
        TypeError: It is not; the message names the mistake that its author probably made.
    """
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
    if "max_turns" not in vars(env):  # `TextEnv.__init__` sets it
        raise TypeError(f"{type(env).__name__}.__init__ has to call super().__init__(max_turns)")
    return env


def _near_argument(error: TypeError) -> str:
    """Return a hint at the argument that a call of `QuestionEnv` misspelled; "" if none."""
    misspelled = re.search(
        r"QuestionEnv\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error)
    )
    if misspelled is None:
        return ""
    arguments = list(inspect.signature(QuestionEnv).parameters)
    return f"; {did_you_mean(misspelled[1], arguments)}its arguments are {', '.join(arguments)}"


def defaults_of(env_id: str) -> dict[str, Any]:
    """Return the defaults of an environment's options, by name. Raises as `spec_of` does."""
    spec = spec_of(env_id)
    parameters = inspect.signature(_load_factory(spec)).parameters.values()
    defaults = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.default is not parameter.empty
    }
    return defaults | spec.kwargs


def takes_option(env_id: str, option: str) -> bool:
    """Return whether an environment has a parameter of this name; `**options` alone do not count.

    An environment with `**options` may ignore them, or hand them to anything. Raises as `make`
    does.
    """
    return option in _option_names(_load_factory(spec_of(env_id)))


def _option_names(factory: Callable[..., Any]) -> list[str]:
    """Return the names of a factory's parameters, without `*args` and `**options`."""
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = inspect.signature(factory).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind not in variadic]


def _takes_any_option(factory: Callable[..., Any]) -> bool:
    """Return whether a factory has `**options`."""
    parameters = inspect.signature(factory).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def spec_of(env_id: str) -> EnvSpec:
    """Return Gymnasium's spec of an environment, which is registered if it is not yet.

    Raises:
        ValueError: The id is unknown, its declaration is broken, or its module cannot be imported.
    """
    env_id = module_id(env_id)
    if env_id in gymnasium.registry:
        return gymnasium.registry[env_id]
    module, colon, name = env_id.partition(":")
    if not colon:
        _register_declared(env_id)
        return gymnasium.registry[env_id]
    if name.isidentifier() or not name:
        _register_factory(env_id)
        return gymnasium.registry[env_id]
    # The name is an id such as `Echo-v0`, which the module registers when it is imported.
    import_user_module(module, f"the environment {env_id!r}")
    if name not in gymnasium.registry:
        raise ValueError(
            f"importing {module} registers no environment {name!r}; "
            f"{did_you_mean(name, gymnasium.registry)}"
            f"name a class in it ({module}:CLASS), "
            f"or call gymnasium.register(id={name!r}, …) there"
        )
    return gymnasium.registry[name]


def _register_declared(env_id: str) -> None:
    """Register an environment of a package that was installed after `import turngym`.

    Raises:
        ValueError: No package declares this id, or Gymnasium refuses it.
    """
    if env_id.endswith(".py"):
        raise ValueError(f"{env_id} is a file; name the factory in it, such as {env_id}:make")
    all_entries = entries()
    entry = next((entry for entry in all_entries if entry.id == env_id), None)
    if entry is None:
        ids = [entry.id for entry in all_entries]
        raise ValueError(
            f"unknown environment {env_id!r}; {did_you_mean(env_id, [*ids, *gymnasium.registry])}"
            f"turngym has {', '.join(ids)}; one in a file of your own is named file.py:factory"
        )
    try:
        _register(entry, all_entries)
    except gymnasium.error.Error as error:
        raise ValueError(
            f"the package {entry.package} declares {env_id!r}, which Gymnasium refuses: {error}"
        ) from None


def _register_factory(env_id: str) -> None:
    """Register the environment of a class or function that is named as `module:name`.

    Raises:
        ValueError: There is none of this name, or it is neither a `TextEnv` class nor a function.
    """
    factory = import_object(env_id, "environment")
    if inspect.isclass(factory):
        description = f"the class {factory.__name__}"
        makes_env = issubclass(factory, TextEnv)
    else:
        description = f"a {type(factory).__name__}"
        makes_env = callable(factory)
    if not makes_env:
        raise ValueError(
            f"{env_id} is {description}; "
            "name a class that derives from TextEnv, or a function that makes one"
        )
    gymnasium.register(env_id, entry_point=env_id)


def _register(entry: Entry, all_entries: Iterable[Entry]) -> None:
    """Register an environment; one whose declaration is broken raises an error when it is made.

    Args:
        entry: The environment.
        all_entries: All that are declared, to find another package that declares the same id.

    Raises:
        gymnasium.error.Error: Gymnasium refuses the id.
    """
    packages = [other.package for other in all_entries if other.id == entry.id]
    is_ambiguous = len(packages) > 1 and entry not in ENVS  # turngym's own ids always win
    fault = ""
    if is_ambiguous:
        fault = (
            f"{entry.id} is declared by the packages {' and '.join(packages)}; "
            "uninstall all but one"
        )
    elif not re.fullmatch(r"[\w.]+:\w+", entry.entry_point):
        fault = (
            f"{entry.id} is declared by the package {entry.package} as {entry.entry_point!r}; "
            "it needs module:factory"
        )
    entry_point = partial(_raise_declaration_fault, fault) if fault else entry.entry_point
    gymnasium.register(
        entry.id, entry_point=entry_point, additional_wrappers=(Limited.wrapper_spec(),)
    )


def _raise_declaration_fault(fault: str, **options: Any) -> NoReturn:
    """Raise ValueError: the factory of an environment whose declaration is broken."""
    raise ValueError(fault)


def _load_factory(spec: EnvSpec) -> Callable[..., Any]:
    """Return the factory of an environment; if the spec only names it, its module is imported.

    Raises:
        ValueError: The spec has no factory, or it cannot be imported.
    """
    if callable(spec.entry_point):
        return spec.entry_point
    if spec.entry_point is None:
        raise ValueError(
            f"{spec.id} has no entry point: "
            "Gymnasium makes it as a vector only, and turngym needs one"
        )
    entry = next((entry for entry in entries() if entry.id == spec.id), None)
    from_package = "" if entry is None else f" of the package {entry.package}"
    description = f"environment {spec.id}{from_package}"  # for the error
    factory: Callable[..., Any] = import_object(spec.entry_point, description)
    return factory


MAX_SHOWN_CHARS = 300  # characters of a value that an error shows


def flag_of(choice: str) -> str:
    """Return the command-line flag, with its value, by which a command makes a reserved choice.

    Examples: "games=/data" -> "--option games=/data", "none" -> "--option level=none"

    Args:
        choice: `name=value`, or the name of an isolation level, as `reserved_choices` returns it.
    """
    name, equals, value = choice.partition("=")
    if len(value) > MAX_SHOWN_CHARS:
        value = f"{value[:MAX_SHOWN_CHARS]}…"
    if name == "resume":
        return "--resume"
    is_setting = name in choices.SETTINGS and name not in choices.OPTIONS
    if is_setting or name in ("tasks", "shots"):
        return f"--{name.replace('_', '-')} {_quote_for_shell(value)}"
    option = f"{name}={value}" if equals else f"level={choice}"
    return f"--option {_quote_for_shell(option)}"


def _quote_for_shell(value: str) -> str:
    """Return a value quoted for a shell; one with control characters is escaped as in Python."""
    if not value.isprintable():
        value = value.encode("unicode_escape").decode()
    return shlex.quote(value)
