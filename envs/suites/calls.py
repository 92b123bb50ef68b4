"""Calls as the Berkeley Function-Calling Leaderboard writes them, `[f(a=1), g(b=h(c=2))]`: read, carried out, judged.

A reply is read by `ast` and never evaluated: arguments are literals, arithmetic of numbers, and calls. The official
executor calls `eval` on the text behind a list of forbidden names, and keeps its objects in the globals of a module by
the model's and the task's name, so that episodes of one task share them. A conversation is judged turn by turn while it
is played; single replies go to the official checker itself.

Whatever an agent calls is answered. A result that cannot be written down, compared or copied, or that takes too much
time or memory, is an error that the agent is told of; no reply ends an episode without a verdict.
"""

import ast
import copy
import decimal
import importlib
import inspect
import json
import operator
import resource
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

from ..outcomes import EnvFailure

ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
FORBIDDEN = frozenset(
    {"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"}
)  # as officially
DIGITS = 10_000  # an argument, a power or a precision with more would hold up the process
LONGEST = 100_000  # characters of a reply that are read, and of a result
SHOWN = 200_000  # characters of the results of one reply
EVENTS = (
    200_000  # functions that begin and end in the calls of one reply; gold needs a thousandth of it
)
GROWTH = 256 * 2**20  # bytes that this process may grow by meanwhile
ERROR = "Error during execution: "
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
    return [
        {_name(call.func): {one.arg or "": _described(one.value) for one in call.keywords}}
        for call in calls
    ]


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
            return {
                inner(key): inner(value) for key, value in zip(keys, values, strict=True) if key
            }
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=item):
            number = _number(inner(item))
            return -number if isinstance(sign, ast.USub) else number
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in ARITHMETIC:
            return ARITHMETIC[type(sign)](_number(inner(left)), _number(inner(right)))
    raise ValueError(f"{ast.unparse(node)!r:.60} is neither data nor a call")


def _number(value: Any) -> int | float | complex:
    if not isinstance(value, int | float | complex) or (
        isinstance(value, int) and _digits(value) > DIGITS
    ):
        raise ValueError("an operand is no number to compute with, or too large")
    return value


def computed(expression: str) -> int | float | complex:
    """Return what an expression of numbers and operators is, as Python computes it; nothing else is carried out.

    Raises SyntaxError, ValueError, ArithmeticError or RecursionError where it is none, or is too large.
    """
    return _number(_arithmetic(ast.parse(expression.lstrip(" \t"), "<string>", "eval").body))


def _arithmetic(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _power(_number(_arithmetic(node.left)), _number(_arithmetic(node.right)))
    return _value(node, _arithmetic)


def _power(base: int | float | complex, exponent: int | float | complex) -> int | float | complex:
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and _digits(base) * abs(exponent) > DIGITS
    ):
        raise ValueError("the power is too large")
    result: int | float | complex = base**exponent
    return result


def _digits(value: int) -> int:
    return value.bit_length() * 3 // 10


def written(node: ast.expr) -> str:
    """Return the text of a call or a name, as Python writes it; a phrase for one that it cannot write.

    An integer in hexadecimal digits has no size limit when it is read, but has one when it is written.
    """
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError):
        return "(too large to be written)"


def run(calls: Sequence[ast.Call], objects: Mapping[str, Any]) -> list[str]:
    """Return what each call says, errors as text: public methods of `objects`, the later of two of one name.

    Numbers are computed at the precision that a call asks for, which ends with it. Of all calls together no more than
    `SHOWN` characters are said.
    """
    import mpmath

    pairs = (pair for one in objects.values() for pair in inspect.getmembers(one, inspect.ismethod))
    methods = {name: method for name, method in pairs if not name.startswith("_")}
    results, left = list[str](), SHOWN
    budget = _Budget()
    with _PRECISION, decimal.localcontext(), mpmath.workdps(mpmath.mp.dps):
        for call in calls:
            result = _run(call, methods, min(left, LONGEST), budget)
            left = max(left - len(result), 0)
            results.append(result)
    return results


def _run(
    call: ast.Call, methods: Mapping[str, Callable[..., Any]], longest: int, budget: "_Budget"
) -> str:
    try:
        if isinstance(call.func, ast.Name) and call.func.id in FORBIDDEN:
            raise ValueError(f"Function call {call.func.id} is not allowed.")
        with budget:
            text = _printed(_called(call, methods))
        if len(text) > longest:
            raise ValueError(f"the result has {len(text)} characters; there is room for {longest}")
    except (Exception, CallTooLarge) as error:  # the agent's call, whatever it was
        return f"{ERROR}{_message(error)}"
    return text


def _printed(result: Any) -> str:
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except (TypeError, ValueError):
            pass
    try:
        return str(result)
    except ValueError as error:
        raise ValueError("the result is a number with too many digits to be shown") from error


def _message(error: BaseException) -> str:
    """Return what an error says; its type where that cannot be told, or is too long, as of a key that is a number."""
    try:
        said = str(error)
    except Exception:
        return type(error).__name__
    return said if len(said) <= LONGEST else type(error).__name__


class CallTooLarge(BaseException):
    """The calls of a reply take too much time or memory; no `except Exception` of a method may keep it."""


class _Budget:
    """Ends calls of this thread that go on for too long, by the number of functions that begin and end in them.

    Seconds would make episodes differ from run to run. Files and folders that are copied into each other, for example,
    hold as many paths as two to the power of the copies.
    """

    def __init__(self) -> None:
        self.events = 0
        self.size = 0
        self.before: Any = None

    def __enter__(self) -> None:
        if self.events > EVENTS:
            raise CallTooLarge("the calls of this reply have taken too long")
        self.before = sys.getprofile()
        sys.setprofile(
            self._count
        )  # for each call anew: the interpreter removes one that has raised

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self.before)

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        self.events += 1
        if self.events > EVENTS:
            raise CallTooLarge("the call takes too long")
        if self.events % 5000 == 0:
            size = _resident()
            self.size = self.size or size
            if size > self.size + GROWTH:
                self.events = EVENTS + 1
                raise CallTooLarge("the call takes too much memory")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


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
    base, exponent = given.get("base", 0), given.get("exponent", 0)
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and _digits(base) * abs(exponent) > DIGITS
    ):
        raise ValueError("the power is too large")
    for places in (given.get("precision", 0), given.get("decimal_places", 0)):
        if isinstance(places, int | float) and abs(places) > DIGITS:
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
        self.row, self.calls_of_gold = row, gold
        self.gold = [[ast.parse(call, mode="eval").body for call in turn] for turn in gold]
        try:
            self.objects, self.right = (_objects(row) for _ in range(2))
        except Exception as error:
            raise EnvFailure(
                f"{row['id']}: its objects cannot be made: {type(error).__name__}: {error}"
            ) from error
        self.results: list[str] = []  # of all calls
        self.called = False  # in the present turn
        self.turn = 0
        self.error = ""
        self.done: list[
            Sequence[ast.Call] | None
        ] = []  # the calls of each reply, None where a turn ended

    def fork(self) -> "Conversation":
        """Return an independent copy in the same state, by the same calls where the objects are too deep to copy."""
        twin = copy.copy(self)
        twin.results, twin.done = list(self.results), list(self.done)
        try:
            twin.objects, twin.right = copy.deepcopy((self.objects, self.right))
        except RecursionError:
            twin = Conversation(self.row, self.calls_of_gold)
            for calls in self.done:
                if calls is None:
                    twin.next_turn()
                else:
                    twin.call(calls)
        return twin

    def call(self, calls: Sequence[ast.Call]) -> list[str]:
        self.done.append(calls)
        results = run(calls, self.objects)
        self.results += results
        self.called = True
        return results

    def next_turn(self) -> None:
        """Judge the present turn, and begin the next."""
        self.done.append(None)
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
    """Return whether two objects are in the same state; one that cannot be compared is in another state."""
    try:
        return _has_the_state_of(one, right)
    except Exception:  # such as a folder within itself
        return False


def _has_the_state_of(one: Any, right: Any) -> bool:
    return all(
        getattr(one, name) == value
        for name, value in vars(right).items()
        if not name.startswith("_")
    )


def judge(category: str, functions: list[dict[str, Any]], gold: list[Any], reply: str) -> str:
    """Return the official error type of a single reply, empty where it is right.

    A reply that makes the official checker raise an error is wrong, as `ast_checker:error`. Raises EnvFailure where the
    checker cannot be imported.
    """
    try:
        found = None if (calls := read(reply)) is None else described(calls)
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        found = None
    if category == "irrelevance":
        return "irrelevance_error:decoder_success" if found else ""
    if found is None:
        return "ast_decoder:decoder_failed"
    checker = _checker()
    try:
        verdict = checker.ast_checker(
            functions, found, gold, checker.Language.PYTHON, category, "turngym"
        )
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
    vars(stub)["MODEL_CONFIG_MAPPING"] = defaultdict(
        lambda: SimpleNamespace(underscore_to_dot=False)
    )
    sys.modules[name] = stub
    try:
        return official("eval_checker.ast_eval.ast_checker")
    finally:
        del sys.modules[name]
        if known is not None:
            sys.modules[name] = known
