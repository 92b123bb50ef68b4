"""Calls as the Berkeley Function-Calling Leaderboard writes them, `[f(a=1), g(b=h(c=2))]`: read, carried out, judged.

A reply is read by `ast` and never evaluated: arguments are literals, arithmetic of numbers, and calls. The official
executor calls `eval` on the text behind a list of forbidden names, and keeps its objects in the globals of a module by
the model's and the task's name, so that episodes of one task share them. A conversation is judged turn by turn while it
is played; single replies go to the official checker itself.
"""

import ast
import copy
import decimal
import importlib
import inspect
import json
import operator
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any

from ..core import EnvFailure

ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
FORBIDDEN = frozenset({"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"})  # as officially
DIGITS = 10_000  # an argument, a power or a precision with more would hold up the process
LONGEST = 100_000  # characters of a reply that are read
_PRECISION = Lock()  # that of mpmath is one for all threads


def read(reply: str) -> list[ast.Call] | None:
    """Return the calls of a reply; None where it holds something else than a list of calls."""
    text = reply.strip("`\n ")[: LONGEST + 1]
    text = text if text.startswith("[") else f"[{text}"
    text = text if text.endswith("]") else f"{text}]"
    if len(text) > LONGEST:
        return None
    try:
        body = ast.parse(text.strip().strip("'"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    calls = body.elts if isinstance(body, ast.List | ast.Tuple | ast.Set) else [body]
    found = [call for call in calls if isinstance(call, ast.Call)]
    return found if len(found) == len(calls) else None


def described(calls: Sequence[ast.Call]) -> list[dict[str, Any]]:
    """Return calls as `{name: {argument: value}}`, as the official checkers of single replies take them.

    A name counts as its text, and so does a call without named arguments; arguments without a name are left out. Raises
    ValueError where an argument is something else than data or a call.
    """
    return [{_name(call.func): {one.arg or "": _described(one.value) for one in call.keywords}} for call in calls]


def _name(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id] if isinstance(node, ast.Name) else parts))


def _described(node: ast.expr) -> Any:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=value):
            return "..." if value is Ellipsis else value
        case ast.Call(keywords=[]) | ast.Subscript():
            return ast.unparse(node)
        case ast.Call():
            return described([node])[0]
        case ast.UnaryOp(operand=ast.Constant(value=int() | float() | complex() as number)):
            return -number  # whatever the operator is, as officially
        case ast.UnaryOp() | ast.Set():
            raise ValueError(f"{ast.unparse(node)!r:.60} is no value")
    return _value(node, _described)


def _value(node: ast.expr, inner: Callable[[ast.expr], Any]) -> Any:
    """Return the value of a literal whose parts `inner` reads. Raises ValueError where it is none."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [inner(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(inner(item) for item in items)
        case ast.Set(elts=items):
            return {inner(item) for item in items}
        case ast.Dict(keys=keys, values=values) if all(keys):
            return {inner(key): inner(value) for key, value in zip(keys, values, strict=True) if key}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=item):
            number = _number(inner(item))
            return -number if isinstance(sign, ast.USub) else number
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in ARITHMETIC:
            return ARITHMETIC[type(sign)](_number(inner(left)), _number(inner(right)))
    raise ValueError(f"{ast.unparse(node)!r:.60} is neither data nor a call")


def _number(value: Any) -> int | float | complex:
    if not isinstance(value, int | float | complex) or (isinstance(value, int) and _digits(value) > DIGITS):
        raise ValueError("an operand is no number to compute with, or too large")
    return value


def _digits(value: int) -> int:
    return value.bit_length() * 3 // 10


def run(calls: Sequence[ast.Call], objects: Mapping[str, Any]) -> list[str]:
    """Return what each call says, errors as text: public methods of `objects`, the later of two of one name.

    Numbers are computed at the precision that a call asks for, which ends with it.
    """
    import mpmath

    found = (pair for one in objects.values() for pair in inspect.getmembers(one, inspect.ismethod))
    methods = {name: method for name, method in found if not name.startswith("_")}
    with _PRECISION, decimal.localcontext(), mpmath.workdps(mpmath.mp.dps):
        return [_run(call, methods) for call in calls]


def _run(call: ast.Call, methods: Mapping[str, Callable[..., Any]]) -> str:
    try:
        if isinstance(call.func, ast.Name) and call.func.id in FORBIDDEN:
            raise ValueError(f"Function call {call.func.id} is not allowed.")
        result = _called(call, methods)
    except Exception as error:  # the agent's call, whatever it was
        return f"Error during execution: {error}"
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except (TypeError, ValueError):
            return str(result)
    return str(result)


def _called(node: ast.expr, methods: Mapping[str, Callable[..., Any]]) -> Any:
    if not isinstance(node, ast.Call):
        if isinstance(node, ast.Name):
            raise NameError(f"name {node.id!r} is not defined")
        return _value(node, lambda item: _called(item, methods))
    name = ast.unparse(node.func)
    if name not in methods:
        raise NameError(f"name {name!r} is not defined")
    positional = [_called(item, methods) for item in node.args]
    named = {one.arg or "**": _called(one.value, methods) for one in node.keywords}
    try:
        given = inspect.signature(methods[name]).bind(*positional, **named).arguments
    except TypeError:  # the call below says so in its own words
        given = {}
    base, exponent, precision = (given.get(one, 0) for one in ("base", "exponent", "precision"))
    if isinstance(base, int) and isinstance(exponent, int) and _digits(base) * abs(exponent) > DIGITS:
        raise ValueError("the power is too large")
    if isinstance(precision, int) and abs(precision) > DIGITS:
        raise ValueError("the precision is too high")
    return methods[name](*positional, **named)


PACKAGE = "bfcl_eval"
SOURCES = "eval_checker.multi_turn_eval.func_source_code"
MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""Where the package has the classes of conversations; the names of its files of functions are the same."""
STATELESS = "MathAPI"


class Conversation:
    """The objects of one conversation, those of its gold calls beside them, and the verdict so far.

    `error` is the official error type, empty while nothing is wrong. Raises EnvFailure where the package cannot be
    imported, or makes no object of a class.
    """

    def __init__(self, row: Mapping[str, Any], gold: Sequence[Sequence[str]]) -> None:
        self.gold = [[ast.parse(call, mode="eval").body for call in turn] for turn in gold]
        try:
            self.objects, self.right = (_objects(row) for _ in range(2))
        except Exception as error:
            raise EnvFailure(f"{row['id']}: its objects cannot be made: {type(error).__name__}: {error}") from error
        self.results: list[str] = []  # of all calls
        self.called = False  # in the present turn
        self.turn = 0
        self.error = ""

    def call(self, calls: Sequence[ast.Call]) -> list[str]:
        results = run(calls, self.objects)
        self.results += results
        self.called = True
        return results

    def next_turn(self) -> None:
        """Judge the present turn, and begin the next."""
        gold = [call for call in self.gold[self.turn] if isinstance(call, ast.Call)]
        results = run(gold, self.right)
        if gold and not self.error:
            if not self.called:
                self.error = "multi_turn:empty_turn_model_response"
            elif not all(_same(self.objects[name], right) for name, right in self.right.items()):
                self.error = "multi_turn:instance_state_mismatch"
            elif not Counter(results) <= Counter(self.results):
                self.error = "multi_turn:execution_response_mismatch"
        self.turn, self.called = self.turn + 1, False


def _objects(row: Mapping[str, Any]) -> dict[str, Any]:
    objects = {}
    for name in row["involved_classes"]:
        objects[name] = one = getattr(official(f"{SOURCES}.{MODULES[name]}"), name)()
        if name != STATELESS:
            scenario = copy.deepcopy(row["initial_config"].get(name, {}))
            one._load_scenario(scenario, long_context="long_context" in row["id"])
    return objects


def _same(one: Any, right: Any) -> bool:
    return all(getattr(one, name) == value for name, value in vars(right).items() if not name.startswith("_"))


def judge(category: str, functions: list[dict[str, Any]], gold: list[Any], reply: str) -> str:
    """Return the official error type of a single reply, empty where it is right.

    A reply that makes the official checker raise an error is wrong, as `ast_checker:error`. Raises EnvFailure where the
    checker cannot be imported.
    """
    try:
        found = None if (calls := read(reply)) is None else described(calls)
    except (ValueError, TypeError, ArithmeticError):
        found = None
    if category == "irrelevance":
        return "irrelevance_error:decoder_success" if found else ""
    if found is None:
        return "ast_decoder:decoder_failed"
    checker = _checker()
    try:
        verdict = checker.ast_checker(functions, found, gold, checker.Language.PYTHON, category, "turngym")
    except Exception:  # such as a value that no dictionary takes as a key
        return "ast_checker:error"
    return "" if verdict["valid"] else str(verdict["error_type"])


def official(path: str) -> Any:
    """Return a module of the package. Raises EnvFailure where it cannot be imported."""
    try:
        return importlib.import_module(f"{PACKAGE}.{path}")
    except ImportError as error:
        raise EnvFailure(f"{PACKAGE}.{path} cannot be imported: {error}") from error


@cache
def _checker() -> Any:
    """Return the official checker; the table of models that it asks for would import the clients of all of them."""
    name = f"{PACKAGE}.constants.model_config"
    known = sys.modules.get(name)
    stub = ModuleType(name)
    vars(stub)["MODEL_CONFIG_MAPPING"] = defaultdict(lambda: SimpleNamespace(underscore_to_dot=False))
    sys.modules[name] = stub
    try:
        return official("eval_checker.ast_eval.ast_checker")
    finally:
        del sys.modules[name]
        if known is not None:
            sys.modules[name] = known
