"""Learning methods by name: `METHODS` has those of turngym. A method is imported when it is first used.

Each module is the card of a paper: title, equation, source of the defaults, grade of the evidence, deviations; all are
written with the names of `base`.
Grades: A, read in released code; B, text of the paper; C, a plausible reading.

- `base_algorithms`: each decides the advantage, and is named first
- `advantage`, `reward`, `sampling`: what is drawn, and what it earns
- `clip`, `surrogate`, `kl`, `entropy`, `token_weights`: terms of the loss, and the weights of tokens in it
- `contrib`: formulas that are our own reading of a paper (grade C)

Methods of others are functions of the same form: an installed package declares them as entry points of the group
`turngym.methods` (the name is the method's, the value `module:factory`), and one's own is named `module:factory`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from itertools import combinations
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...tools.checks import did_you_mean
from ...tools.files import parse_toml
from ...tools.plugins import (
    Plugin,
    declared_plugins,
    describe_error,
    find_plugin,
    import_object,
    is_foreign,
)
from ..control.parameters import Parameter, checked, parameters, read_parameters

if TYPE_CHECKING:
    from ..control.control import Control

GROUP = "turngym.methods"  # of entry points
_FILES = {
    path.stem: path for path in Path(__file__).parent.glob("*/*.py")
}  # a method is in the folder of its knob
_OF_A_MODULE = re.compile(r"([^:=]+:[^\W\d]\w*)(?:(:)(.*))?")
Sets = dict[
    str, dict[str, Any]
]  # what a control sets, unless all of these parameters have these values


@dataclass(frozen=True)
class Method:
    """A row of `METHODS`: what `turngym train NAME` runs, and where the function that makes the control is."""

    name: str  # the function has `_` for `-`
    recipe: Mapping[str, Any] = field(
        default_factory=dict
    )  # empty for a part, which is named with another method
    sets: Sets = field(default_factory=dict)
    module: str = ""  # in this folder; without one it is called what the function is
    paper: tuple[str, ...] = ()  # parameters that variant=code does not have

    def __call__(self, **arguments: Any) -> Control:
        """Return the control. Raises ValueError on an argument out of range."""
        return self.load()(**arguments)

    def load(self) -> Callable[..., Control]:
        """Return the function."""
        function: Callable[..., Control] = getattr(
            import_module(f".{self.path.parent.name}.{self.path.stem}", __package__), self._function
        )
        return function

    def parameters(self, variant: str = "paper") -> dict[str, Parameter]:
        """Return the parameters of the function, which is not imported for it."""
        known = read_parameters(self.path, self._function)
        return {
            name: one for name, one in known.items() if variant != "code" or name not in self.paper
        }

    @property
    def path(self) -> Path:
        """The file of the module."""
        return _FILES[self.module or self._function]

    @property
    def _function(self) -> str:
        return self.name.replace("-", "_")


CREDIT: Sets = {"credit": {}}
BRANCHING: Sets = {"branching": {}}
SURROGATE: Sets = {"surrogate": {}}
CLIP: Sets = {"clip": {"clip_low": 0.2, "clip_high": 0.2}}
LIMIT: Sets = {"surrogate": {"limit": inf}}
MEAN: Sets = {"aggregation": {"aggregation": "token-mean"}}


def _alike(
    names: str, run: str, updates: int = 1, sets: Sets | None = None, module: str = ""
) -> list[Method]:
    """Return the rows of methods that differ in their names alone; `run` is what is trained, with {} for a name."""
    more = {"updates": updates} if updates > 1 else {}
    return [
        Method(name, {"method": run.format(name), **more}, sets or {}, module)
        for name in names.split()
    ]


ROWS = (
    *_alike(
        "acpo actfocus ada-ent-reg adathink-med aem aent aepo-he aer apo cw-grpo d3s data-subset deng "
        "dynamic-sampling edge-grpo empg empo entrocraft entropic entropy-adv entropy-bonus ettrl "
        "forking-tokens kl less nsr opefo pear positive-reweighting rand-pos-clip repo turn-floor ucas ulorl",
        "grpo,{}",
    ),
    *_alike(
        "archer aspo bapo ce-gppo cispo dmpo espo flowrl htpo kl-cov sent",
        "grpo,{}",
        2,
        SURROGATE | {"clip": {}},
    ),
    *_alike("clip-cov eag-rl m2po", "grpo,{}", 2, {"clip": {}}),
    *_alike("clip-free clip-higher clip-lower clip-tighter", "grpo,{}", 2, {"clip": {}}, "clip"),
    *_alike("erc steer", "grpo,{}", 2),
    *_alike("canon gigpo mt-grpo qae reinforce-pp rl-zvp", "{}", 1, CREDIT),
    Method("adapo", {"method": "grpo,adapo", "updates": 2}, {"clip": {}}, module="repo"),
    Method("adr", {"method": "grpo,adr"}, BRANCHING),
    Method("aepo", {"method": "grpo,aepo", "updates": 2}, BRANCHING | SURROGATE),
    Method("aepo-advantage", module="aepo"),
    Method("aepo-branching", sets=BRANCHING, paper=("threshold",)),
    Method("aepo-clip", sets=SURROGATE, module="aepo"),
    Method("aepo-wang", {"method": "grpo,aepo-wang"}, {"branching": {"pool": 0.0}}),
    Method("arpo", {"method": "grpo,arpo"}, BRANCHING, paper=("threshold",)),
    Method("bilevel-gae", {"method": "bilevel-gae", "updates": 2}, CREDIT),
    Method("ces", {"method": "dapo,ces", "updates": 2}),
    Method("cure", {"method": "dapo,cure", "updates": 2}, BRANCHING),
    Method("dapo", {"method": "dapo", "updates": 2}, CREDIT | CLIP | LIMIT),
    Method("dart", {"method": "dart", "updates": 2}, CREDIT | CLIP),
    Method("dcpo", {"method": "dcpo", "updates": 2}, CREDIT | SURROGATE | {"clip": {}}),
    Method(
        "dler",
        {"method": "reinforce-pp:baseline=group,clip-higher,dynamic-sampling,dler", "updates": 2},
        SURROGATE,
    ),
    Method("dr-grpo", {"method": "dr-grpo"}, CREDIT | CLIP | {"aggregation": {}}),
    Method("em-inf", {"method": "grpo,em-inf"}, {"temperature": {}}),
    Method("em-rl", {"method": "rloo,em-rl"}),
    Method("epo", {"method": "grpo,epo"}, paper=("gamma",)),
    Method(
        "evol-rl", {"method": "grpo:clip_high=0.28,evol-rl,entropy-bonus:coef=0.003", "updates": 2}
    ),
    Method("fr3e", {"method": "fr3e", "updates": 2}, CREDIT | BRANCHING | {"clip": {}}),
    Method("grpo", {"method": "grpo"}, CREDIT | CLIP | MEAN),
    Method(
        "grpo-s",
        {"method": "grpo-s", "updates": 2},
        CREDIT | SURROGATE | {"clip": {}},
        module="gtpo",
    ),
    Method(
        "gspo", {"method": "grpo,gspo", "updates": 2}, SURROGATE | {"clip": {}, "aggregation": {}}
    ),
    Method("gtpo", {"method": "gtpo", "updates": 2}, CREDIT | {"clip": {}}),
    Method("one-shot-em", {"method": "grpo,one-shot-em"}, SURROGATE),
    Method("papo", {"method": "grpo,papo"}, module="opefo"),
    Method("ppo", {"method": "ppo", "updates": 2}, CREDIT | LIMIT),
    Method("prorl", {"method": "grpo:clip_high=0.4,kl_coef=0.0001,prorl", "updates": 2}),
    Method("psr", {"method": "grpo,psr"}, module="nsr"),
    Method(
        "reinforce",
        {"method": "reinforce:baseline=group"},
        SURROGATE | MEAN | {"credit": {"baseline": "none"}},
    ),
    Method(
        "rloo",
        {"method": "rloo"},
        CREDIT | {key: {"variant": "code"} for key in ("surrogate", "aggregation")},
    ),
    Method("seed-grpo", {"method": "grpo:normalize=none,seed-grpo"}),
    Method("simko", {"method": "grpo,simko", "updates": 2}, SURROGATE),
    Method("spear", {"method": "grpo:normalize=none,clip_high=0.28,spear"}, {"replay": {}}),
    Method("starpo-s", {"method": "grpo,starpo-s", "updates": 2}, CLIP),
    Method("tis"),
    Method("treerl", {"method": "treerl"}, CREDIT | BRANCHING),
)
METHODS: dict[str, Method | Callable[..., Control]] = {
    row.name: row for row in sorted(ROWS, key=lambda row: row.name)
}
_COMPARING = "canon dapo dart dcpo dr-grpo fr3e gigpo grpo grpo-s gtpo mt-grpo qae rloo treerl"
COMPARING = frozenset(_COMPARING.split())  # paths of a group
METHOD_RECIPES = {row.name: row.recipe for row in ROWS if row.recipe}


BASELINES = frozenset(
    [
        *("dler", "dr-grpo", "dynamic-sampling", "gigpo", "grpo", "gspo", "kl"),
        *("mt-grpo", "ppo", "reinforce", "reinforce-pp", "rloo", "tis"),
    ]
)
"""Methods that look at no entropy, neither to act on it nor to explain what they do."""


def controls_entropy(text: str) -> bool:
    """Return whether a text names a method of which control of entropy is the point; one of others counts as one."""
    return any(name not in BASELINES for name, _ in _split(text))


def others() -> list[Plugin]:
    """Return the methods that installed packages declare; nothing is imported."""
    return [one for one in declared_plugins(GROUP) if one.name not in METHODS]


def plugin_recipe(name: str) -> Mapping[str, Any]:
    """Return what `turngym train NAME` runs for the method of an installed package, which is imported for it.

    The line `Recipe: method = "dapo,NAME", updates = 2` of its docstring says it. Without such a line that is NAME, if
    the method brings an advantage, and else `grpo,NAME`.

    Returns:
        The recipe; empty if no package declares the name, or turngym has a method of this name.

    Raises:
        ValueError: Several packages declare the name, its module cannot be imported, or the line is no recipe of it.
    """
    plugin = None if name in METHODS else find_plugin(name, GROUP)
    if plugin is None:
        return {}
    line = re.search(r"^Recipe: (.+)$", _card(name), re.MULTILINE)
    if line is None:
        method = name if _build(name, [], {}).credit is not None else f"grpo,{name}"
        return {"method": method}
    wrong = (
        f"the method {name} of the package {plugin.package}: the line {line[0]!r} of its docstring"
    )
    form = f'write TOML with commas, such as Recipe: method = "grpo,{name}", updates = 2'
    try:
        recipe: dict[str, Any] = parse_toml(f"recipe = {{ {line[1]} }}")["recipe"]
    except ValueError as error:
        raise ValueError(f"{wrong} is not TOML: {error}; {form}") from error
    if name not in [named for named, _ in _split(str(recipe.get("method", "")))]:
        raise ValueError(f"{wrong} does not run {name}; {form}")
    return recipe


def of_others(text: str) -> bool:
    """Return whether a text names a method that turngym does not have itself, imported or not."""
    return any(name not in METHODS for name, _ in _split(text))


def foreign(text: str) -> bool:
    """Return whether a text names a method that only the present command may name."""
    return any(name not in METHODS and is_foreign(name, GROUP) for name, _ in _split(text))


def title(name: str) -> str:
    """Return the first line of a method's card. Raises ValueError on an unknown name, with the nearest known one."""
    return _card(name).partition("\n")[0]


def evidence(name: str) -> tuple[str, str]:
    """Return the knob that a method turns, and the grade of its evidence; "" where its card does not say."""
    found = (
        re.search(pattern, _card(name)) for pattern in (r"Knob: ([^.]+)", r"Evidence: ([ABC])")
    )
    knob, grade = (match[1] if match else "" for match in found)
    return knob, grade


def plausible(text: str) -> list[str]:
    """Return the methods of a text whose formulas are a plausible reading alone."""
    return [name for name, _ in _split(text) if name in METHODS and evidence(name)[1] == "C"]


def describe(name: str) -> str:
    """Return a method's name and card, and its parameters with defaults and ranges. Raises as `title` does."""
    lines = [name, "", _card(name), "", "Parameters:", *map(str, method_parameters(name).values())]
    return "\n".join(lines) + "\n"


def check_methods(text: str) -> None:
    """Raise ValueError as `parse_methods` does, and where two methods set the same thing; import none of turngym."""
    named = list(_split(text))
    texts = [":".join(filter(None, (name, ",".join(pairs)))) for name, pairs in named]
    sets = [_sets(name, pairs) for name, pairs in named]
    for one, other in combinations(range(len(named)), 2):
        for what in (name for name in sets[one] if name in sets[other]):
            ways = (texts[:left] + texts[left + 1 :] for left in (other, one))
            either = " or ".join(f"--method {','.join(way)}" for way in ways)
            raise ValueError(
                f"{named[one][0]} and {named[other][0]} both set {what}; use one of them: {either}"
            )


def _sets(name: str, pairs: list[str]) -> list[str]:
    """Return what a method sets with these `name=value` texts; that of others is made for it."""
    row = METHODS.get(name)
    if not isinstance(row, Method):
        return sorted(_build(name, pairs, {}).sets)
    known, chosen = _values(name, pairs)
    values = {key: one.default for key, one in known.items()} | chosen
    return [
        what
        for what, off in row.sets.items()
        if not off or off != {key: values[key] for key in off}
    ]


def check_group(text: str, group: int) -> None:
    """Raise ValueError where a method of `text` compares the paths of a group, and a group is a single path."""
    for name, pairs in _split(text) if group == 1 else ():
        if name in COMPARING or (
            name in METHODS and _values(name, pairs)[1].get("baseline") == "group"
        ):
            fix = "use --group 8, or a method that needs no others: --method reinforce-pp"
            raise ValueError(
                f"group is 1, but {name} judges a path by the others of its group; {fix}"
            )


def method_parameters(name: str, variant: str = "paper") -> dict[str, Parameter]:
    """Return the parameters of a method by name. Raises ValueError on an unknown method."""
    row = _row(name)
    return row.parameters(variant) if isinstance(row, Method) else parameters(row)


def parse_methods(text: str, defaults: Mapping[str, Any] = MappingProxyType({})) -> list[Control]:
    """Return the controls that a text such as "grpo,epo:alpha=0.2,high=1.5" names, in its order.

    Parameters follow the method they belong to; `defaults` fill those that the text leaves out, as a run's number of
    `steps` does. Raises ValueError on an unknown method or parameter, with the nearest known one, on a parameter given
    twice and on a bad value.
    """
    for name, _ in _split(text):
        _row(name)
    return [_build(name, pairs, defaults) for name, pairs in _split(text)]


def _split(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each method's name and its `name=value` texts: an item without a colon but with "=" continues the last."""
    name, pairs = "", list[str]()
    for item in (item.strip() for item in text.split(",")):
        if name and "=" in item and ":" not in item.partition("=")[0]:
            pairs.append(item)
            continue
        if name:
            yield name, pairs
        name, colon, pair = item.partition(":")
        if name not in METHODS and (of_a_module := _OF_A_MODULE.fullmatch(item)):
            name, colon, pair = of_a_module.groups()
        pairs = [pair] if colon else []
        if not name:
            raise ValueError(
                f"methods are {text!r}; write names with commas between, such as grpo,epo:alpha=0.2"
            )
    yield name, pairs


def _values(name: str, pairs: list[str]) -> tuple[dict[str, Parameter], dict[str, Any]]:
    """Return the parameters of a method, and the values that `name=value` texts give to some."""
    texts: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"{name}: {pair!r} is no parameter; write {name}:parameter=value")
        if key in texts:
            raise ValueError(f"{name}: {key} is given twice; give it once")
        texts[key] = text
    known = method_parameters(name, texts.get("variant", "paper"))
    values = {
        key: known[_known(f"parameter of {name}", key, known)].parse(name, text)
        for key, text in texts.items()
    }
    for key, value in values.items():
        known[key].check(name, value)
    return known, values


def _build(name: str, pairs: list[str], defaults: Mapping[str, Any]) -> Control:
    known, values = _values(name, pairs)
    return _row(name)(**{key: value for key, value in defaults.items() if key in known} | values)


def _row(name: str) -> Method | Callable[..., Control]:
    """Return what makes a method's control: a row of `METHODS`, or the function of others, which is imported for it."""
    if name in METHODS:
        return METHODS[name]
    spec, what = name, "method"
    if ":" not in name:
        if (plugin := find_plugin(name, GROUP)) is None:
            _known("method", name, {*METHODS, *(one.name for one in others())})
            raise AssertionError("unreachable: nobody declares it")
        spec, what = plugin.spec, f"method {name} of the package {plugin.package}"
    function = import_object(spec, what)
    if not inspect.isfunction(function):
        raise ValueError(
            f"the {what} {spec!r} is a {type(function).__name__}; write a function that returns a Control"
        )
    try:
        parameters(function)
    except (TypeError, ValueError, NameError) as error:
        raise ValueError(f"the {what} {spec!r}: {error}") from error
    return _others_function(function, name, f"the {what} {spec!r}")


def _others_function(function: Callable[..., Any], name: str, what: str) -> Callable[..., Control]:
    """Return a function of others whose arguments and result are checked; what it raises is a ValueError."""

    @wraps(function)
    def build(*args: Any, **kwargs: Any) -> Control:
        from ..control.control import Control

        try:
            made = checked(function, name)(*args, **kwargs)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"{what} raises {describe_error(error)}") from error
        if not isinstance(made, Control):
            needed = "it must return a turngym.training.control.control.Control"
            raise ValueError(f"{what} returns a {type(made).__name__}; {needed}")
        return made

    return build


def _card(name: str) -> str:
    """Return the docstring of a method's module, which is not imported for it."""
    row = _row(name)
    if not isinstance(row, Method):
        return inspect.getdoc(row) or sys.modules[row.__module__].__doc__ or name
    return row.path.read_text("utf-8").split('"""', 2)[1].strip()


def _known(what: str, name: str, table: Iterable[str]) -> str:
    if name not in table:
        hint = did_you_mean(name, table, cutoff=0.4)
        raise ValueError(
            f"no {what} is called {name!r}; {hint}known are {', '.join(sorted(table))}"
        )
    return name
