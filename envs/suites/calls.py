"""Calls as the Berkeley Function-Calling Leaderboard writes them: `[f(a=1), g(b=h(c=2))]`.

`parse_calls` reads a reply, `judge_reply` judges one that is an answer by itself, by the official
checker, and `Conversation` runs calls on the objects of an episode and judges it turn by turn.

A reply is parsed with `ast` and never evaluated: arguments are literals, arithmetic of numbers, and
calls. The official executor calls `eval` on the text behind a list of forbidden names, and keeps
its objects in the globals of a module by the model's and the task's name, so that episodes of one
task share them.

Every call gets an answer. A result that cannot be printed, compared or copied, or that takes too
much time or memory, is reported to the agent as an error; no reply ends an episode without a
verdict.
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
"""The module in `SOURCES` of each class of objects; the package's files of functions have the same
names."""
STATELESS = "MathAPI"  # the one class that has no initial configuration

ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
# Names that the official executor refuses to call.
FORBIDDEN = frozenset({"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"})
ERROR_PREFIX = "Error during execution: "
# Decimal digits of an operand, a power or a precision; with more, one operation could take hours.
MAX_DIGITS = 10_000
MAX_CHARACTERS = 100_000  # of a reply that is parsed, and of the result of one call
MAX_REPLY_CHARACTERS = 200_000  # of the results of all calls of one reply
# Function calls and returns while the calls of one reply run; gold needs a thousandth of it.
MAX_EVENTS = 200_000
MAX_MEMORY_GROWTH = 256 * 2**20  # bytes that this process may grow by while a reply's calls run
_PRECISION_LOCK = Lock()  # the precision of mpmath is one setting for all threads


def parse_calls(reply: str) -> list[ast.Call] | None:
    """Parse the calls of a reply; nothing is evaluated.

    Backquotes around the list and missing brackets are forgiven, as in the official reader:
    "```f(a=1)```" is read as "[f(a=1)]".

    Returns:
        The calls in their order, or None if the reply is anything else than a list of calls.
    """
    source = reply.strip("`\n ")[: MAX_CHARACTERS + 1]
    if not source.startswith("["):
        source = f"[{source}"
    if not source.endswith("]"):
        source = f"{source}]"
    if len(source) > MAX_CHARACTERS:
        return None
    try:
        expression = ast.parse(source.strip().strip("'"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if isinstance(expression, ast.List | ast.Tuple | ast.Set):
        items = expression.elts
    else:
        items = [expression]
    calls = [item for item in items if isinstance(item, ast.Call)]
    return calls if len(calls) == len(items) else None


def unparse_call(node: ast.expr) -> str:
    """Return the source text of a call or a name, or a fixed phrase if Python cannot write it.

    That happens with very deep nesting, and with long hexadecimal integers: Python limits the
    digits of an integer that it writes in decimal, but not of a hexadecimal one that it reads.
    """
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError):
        return "(too large to be written)"


# -- single replies ----------------------------------------------------------------------------


def judge_reply(category: str, functions: list[dict[str, Any]], gold: list[Any], reply: str) -> str:
    """Judge a reply of a single-turn category with the official checker.

    Args:
        category: The category, such as `parallel`. In `irrelevance` any call is wrong.
        functions: The documents of the functions that the agent was shown.
        gold: The official answer, a list of `{function: {argument: [right values]}}`.
        reply: What the agent wrote.

    Returns:
        The official error type, empty if the reply is right. A reply that makes the official
        checker raise is wrong, with the type `ast_checker:error`.

    Raises:
        EnvFailure: The checker cannot be imported.
    """
    described_calls = _decode_reply(reply)
    if category == "irrelevance":
        return "irrelevance_error:decoder_success" if described_calls else ""
    if described_calls is None:
        return "ast_decoder:decoder_failed"
    checker = _import_checker()
    language = checker.Language.PYTHON
    try:
        verdict = checker.ast_checker(
            functions, described_calls, gold, language, category, "turngym"
        )
    except Exception:  # such as TypeError for a value that cannot be a key of a dictionary
        return "ast_checker:error"
    return "" if verdict["valid"] else str(verdict["error_type"])


def _decode_reply(reply: str) -> list[dict[str, Any]] | None:
    """Return the calls of a reply as `describe_calls` does, or None if they cannot be read."""
    try:
        calls = parse_calls(reply)
        return None if calls is None else describe_calls(calls)
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        return None


def describe_calls(calls: Sequence[ast.Call]) -> list[dict[str, Any]]:
    """Convert calls to the data that the official checker of single replies compares.

    "f(x=1, y=g(z=2))" becomes {"f": {"x": 1, "y": {"g": {"z": 2}}}}. As officially, positional
    arguments are dropped, a bare name stands for its text, and so does a call without named
    arguments.

    Returns:
        One `{function: {argument: value}}` for each call.

    Raises:
        ValueError: An argument is neither data nor a call.
    """
    descriptions: list[dict[str, Any]] = []
    for call in calls:
        # `**mapping` is a keyword without a name.
        arguments = {
            keyword.arg or "": _describe_argument(keyword.value) for keyword in call.keywords
        }
        descriptions.append({_dotted_name(call.func): arguments})
    return descriptions


def _dotted_name(function: ast.expr) -> str:
    """Return the name of a called function, such as "a.b.c".

    If it begins with anything but a name, only the attributes count: "f(1).b" gives "b".
    """
    names: list[str] = []
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        names.append(function.id)
    return ".".join(reversed(names))


def _describe_argument(node: ast.expr) -> Any:
    """Return the value of an argument as the official reader gives it; see `describe_calls`."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=value):
            return "..." if value is Ellipsis else value
        case ast.Call(keywords=[]) | ast.Subscript():
            return ast.unparse(node)
        case ast.Call():
            return describe_calls([node])[0]
        case ast.UnaryOp(operand=ast.Constant(value=int() | float() | complex() as number)):
            return -number  # the official reader negates it whatever the operator is: `+1`, `~1`
        case ast.UnaryOp() | ast.Set():
            raise ValueError(f"{ast.unparse(node)!r:.60} is no value")
    return _literal_value(node, _describe_argument)


# -- arithmetic and literals -------------------------------------------------------------------


def evaluate_arithmetic(expression: str) -> int | float | complex:
    """Compute an expression of numbers and operators as Python does; anything else is refused.

    Raises:
        SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError or MemoryError: The
            text is no such expression, or a number in it is too large.
    """
    # `eval` ignores leading blanks too, but `ast.parse` takes them for an indentation.
    tree = ast.parse(expression.lstrip(" \t"), "<string>", "eval")
    return _require_number(_evaluate_arithmetic_node(tree.body))


def _evaluate_arithmetic_node(node: ast.expr) -> Any:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)):
        return _literal_value(node, _evaluate_arithmetic_node)
    base = _require_number(_evaluate_arithmetic_node(node.left))
    exponent = _require_number(_evaluate_arithmetic_node(node.right))
    if _digits_of_power(base, exponent) > MAX_DIGITS:
        raise ValueError("the power is too large")
    return base**exponent


def _literal_value(node: ast.expr, evaluate_part: Callable[[ast.expr], Any]) -> Any:
    """Return the value of a literal or of arithmetic, `[1, {"a": 2 * 3}]`.

    Args:
        node: The expression. Powers are no part of it.
        evaluate_part: Evaluates the items of a collection and the operands of an operator.

    Raises:
        ValueError: The expression is something else, or an operand is no number or too large.
    """
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [evaluate_part(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(evaluate_part(item) for item in items)
        case ast.Set(elts=items):
            return {evaluate_part(item) for item in items}
        # `{**mapping}` has the key None in the syntax tree: it falls through to the error.
        case ast.Dict(keys=keys, values=values) if all(keys):
            return {
                evaluate_part(key): evaluate_part(value)
                for key, value in zip(keys, values, strict=True)
                if key  # for the type checker only
            }
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _require_number(evaluate_part(operand))
            return -number if isinstance(sign, ast.USub) else number
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in ARITHMETIC:
            compute = ARITHMETIC[type(sign)]
            return compute(
                _require_number(evaluate_part(left)), _require_number(evaluate_part(right))
            )
    raise ValueError(f"{ast.unparse(node)!r:.60} is neither data nor a call")


def _require_number(value: Any) -> int | float | complex:
    """Return `value`; raise ValueError unless it is a number small enough to compute with."""
    if not isinstance(value, int | float | complex) or (
        isinstance(value, int) and _decimal_digits(value) > MAX_DIGITS
    ):
        raise ValueError("an operand is no number to compute with, or too large")
    return value


def _decimal_digits(value: int) -> int:
    """Estimate the number of decimal digits, without the cost of writing them."""
    return value.bit_length() * 3 // 10  # log10(2) is about 0.3


def _digits_of_power(base: Any, exponent: Any) -> int:
    """Estimate the decimal digits of `base ** exponent`; 0 unless both are integers.

    Only integers can grow without limit: a power of floats overflows at once.
    """
    if isinstance(base, int) and isinstance(exponent, int):
        return base.bit_length() * 3 // 10 * abs(exponent)
    return 0


# -- running calls on objects ------------------------------------------------------------------


def run_calls(calls: Sequence[ast.Call], objects: Mapping[str, Any]) -> list[str]:
    """Run the calls of one reply on objects and return what the agent reads of each.

    Args:
        calls: The calls, in the order in which they are run.
        objects: The objects by the name of their class. Their public methods can be called by
            name; if two objects have a method of one name, the later one counts.

    Returns:
        The result of each call as text, or `ERROR_PREFIX` and an error; of all together about
        `MAX_REPLY_CHARACTERS` at most.
    """
    import mpmath  # here, as only conversations need it

    methods: dict[str, Callable[..., Any]] = {}
    for instance in objects.values():
        for name, method in inspect.getmembers(instance, inspect.ismethod):
            if not name.startswith("_"):
                methods[name] = method
    results: list[str] = []
    characters_left = MAX_REPLY_CHARACTERS
    budget = _Budget()
    # Methods of MathAPI set the global precision of `decimal` and of mpmath: put it back
    # afterwards.
    with _PRECISION_LOCK, decimal.localcontext(), mpmath.workdps(mpmath.mp.dps):
        for call in calls:
            result = _run_call(
                call, methods, max_characters=min(characters_left, MAX_CHARACTERS), budget=budget
            )
            characters_left = max(characters_left - len(result), 0)
            results.append(result)
    return results


def _run_call(
    call: ast.Call,
    methods: Mapping[str, Callable[..., Any]],
    max_characters: int,
    budget: "_Budget",
) -> str:
    """Run one call and return its result as text, or `ERROR_PREFIX` and why there is none."""
    try:
        if isinstance(call.func, ast.Name) and call.func.id in FORBIDDEN:
            raise ValueError(f"Function call {call.func.id} is not allowed.")
        with budget:
            text = _print_result(_evaluate(call, methods))
        if len(text) > max_characters:
            raise ValueError(
                f"the result has {len(text)} characters; there is room for {max_characters}"
            )
    # Whatever an agent's call raises is answered, never propagated.
    except (Exception, CallTooLarge) as error:
        return f"{ERROR_PREFIX}{_error_message(error)}"
    return text


def _evaluate(node: ast.expr, methods: Mapping[str, Callable[..., Any]]) -> Any:
    """Evaluate a call or one of its arguments; nested calls run first, from left to right.

    Args:
        node: The call, or an argument.
        methods: All that can be called, by name. No other name has a meaning.

    Raises:
        NameError: A name is not among the methods.
        ValueError: An argument is no data, or it asks for a computation that would take too long.
        Exception: Whatever the method itself raises.
    """
    if not isinstance(node, ast.Call):
        if isinstance(node, ast.Name):
            raise NameError(f"name {node.id!r} is not defined")
        return _literal_value(node, lambda part: _evaluate(part, methods))
    name = ast.unparse(node.func)
    if name not in methods:
        raise NameError(f"name {name!r} is not defined")
    method = methods[name]
    positional = [_evaluate(argument, methods) for argument in node.args]
    # `**mapping` is a keyword without a name; no method has a parameter "**", so it is refused.
    named = {keyword.arg or "**": _evaluate(keyword.value, methods) for keyword in node.keywords}
    try:
        arguments = inspect.signature(method).bind(*positional, **named).arguments
    except TypeError:
        arguments = {}  # the call below raises the error that the agent reads
    # One operation on huge numbers takes hours inside C code, where no budget can interrupt it.
    if _digits_of_power(arguments.get("base", 0), arguments.get("exponent", 0)) > MAX_DIGITS:
        raise ValueError("the power is too large")
    for precision in (arguments.get("precision", 0), arguments.get("decimal_places", 0)):
        if isinstance(precision, int | float) and abs(precision) > MAX_DIGITS:
            raise ValueError("the precision is too high")
    return method(*positional, **named)


def _print_result(result: Any) -> str:
    """Return a result as the official executor prints it: a dictionary as JSON, if it can be."""
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except (TypeError, ValueError):
            pass
    try:
        return str(result)
    except ValueError as error:
        raise ValueError("the result is a number with too many digits to be shown") from error


def _error_message(error: BaseException) -> str:
    """Return the text of an error, or its type if the text is too long or cannot be made.

    A KeyError of a number with too many digits is an example of the latter.
    """
    try:
        message = str(error)
    except Exception:
        return type(error).__name__
    return message if len(message) <= MAX_CHARACTERS else type(error).__name__


class CallTooLarge(BaseException):
    """The calls of a reply take too much time or memory.

    It is no `Exception`, so that no `except Exception` of a called method can swallow it.
    """


class _Budget:
    """A context manager that interrupts the calls of one reply if they take too long.

    Time is measured in function calls and returns of this thread, counted by a profile function:
    seconds would differ from run to run. A few calls are enough to take forever: folders that are
    copied into each other, for example, hold as many paths as two to the power of the copies.
    """

    def __init__(self) -> None:
        self.events = 0  # function calls and returns so far, in all calls of the reply
        self.initial_bytes = 0  # resident memory at the first measurement; 0 before it
        self.previous_profiler: Any = None

    def __enter__(self) -> None:
        if self.events > MAX_EVENTS:
            raise CallTooLarge("the calls of this reply have taken too long")
        self.previous_profiler = sys.getprofile()
        # Set for each call again, as the interpreter removes a profile function that has raised.
        sys.setprofile(self._count_event)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self.previous_profiler)

    def _count_event(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count one function call or return, and raise CallTooLarge if the budget is used up.

        Memory is measured every 5,000 events, as reading it takes a system call.
        """
        self.events += 1
        if self.events > MAX_EVENTS:
            raise CallTooLarge("the call takes too long")
        if self.events % 5000 == 0:
            resident_bytes = _resident_bytes()
            self.initial_bytes = self.initial_bytes or resident_bytes
            if resident_bytes > self.initial_bytes + MAX_MEMORY_GROWTH:
                self.events = MAX_EVENTS + 1  # no further call of this reply is run
                raise CallTooLarge("the call takes too much memory")


def _resident_bytes() -> int:
    """Return the memory that this process occupies now."""
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return resident_pages * resource.getpagesize()


# -- conversations -----------------------------------------------------------------------------


class Conversation:
    """The state of one conversation: its objects, and beside them those of the gold calls.

    The gold calls of a turn are run when the turn ends; the turn is right if both sets of objects
    are then in the same state, and the agent's calls have returned all that the gold calls return.

    Args:
        row: The task's row of the official data.
        gold: The gold calls as text, one list for each turn of the user.

    Attributes:
        error: The official error type of the first mistake; empty as long as there is none.
        turn: The index of the present turn.
        has_called: Whether the agent has made a call in the present turn.

    Raises:
        EnvFailure: The package cannot be imported, or an object cannot be made.
    """

    def __init__(self, row: Mapping[str, Any], gold: Sequence[Sequence[str]]) -> None:
        self.row = row
        self.gold = gold
        self.parsed_gold = [[ast.parse(call, mode="eval").body for call in turn] for turn in gold]
        try:
            self.objects = _create_objects(row)
            self.gold_objects = _create_objects(row)
        except Exception as error:
            raise EnvFailure(
                f"{row['id']}: its objects cannot be made: {type(error).__name__}: {error}"
            ) from error
        self.results: list[str] = []  # of all calls of the agent, in all turns
        self.has_called = False
        self.turn = 0
        self.error = ""
        # The calls of each reply, and None for each end of a turn.
        self.history: list[Sequence[ast.Call] | None] = []

    def fork(self) -> "Conversation":
        """Return an independent copy in the same state.

        Objects that are nested too deeply to be copied are made anew, and all calls repeated.
        """
        try:
            objects, gold_objects = copy.deepcopy((self.objects, self.gold_objects))
        except RecursionError:
            return self._replay()
        twin = copy.copy(self)
        twin.objects = objects
        twin.gold_objects = gold_objects
        twin.results = list(self.results)
        twin.history = list(self.history)
        return twin

    def _replay(self) -> "Conversation":
        """Return a new conversation in which the same was called."""
        twin = Conversation(self.row, self.gold)
        for calls in self.history:
            if calls is None:
                twin.end_turn()
            else:
                twin.call(calls)
        return twin

    def call(self, calls: Sequence[ast.Call]) -> list[str]:
        """Run the calls of one reply and return their results; see `run_calls`."""
        self.history.append(calls)
        results = run_calls(calls, self.objects)
        self.results += results
        self.has_called = True
        return results

    def end_turn(self) -> None:
        """Run the gold calls of the present turn, judge the turn, and begin the next one."""
        self.history.append(None)
        gold_calls = [node for node in self.parsed_gold[self.turn] if isinstance(node, ast.Call)]
        gold_results = run_calls(gold_calls, self.gold_objects)
        if gold_calls and not self.error:
            self.error = self._judge_turn(gold_results)
        self.turn += 1
        self.has_called = False

    def _judge_turn(self, gold_results: Sequence[str]) -> str:
        """Return the official error type of the present turn, empty if it is right."""
        if not self.has_called:
            return "multi_turn:empty_turn_model_response"
        for name, gold_object in self.gold_objects.items():
            if not _has_state_of(self.objects[name], gold_object):
                return "multi_turn:instance_state_mismatch"
        # As officially, results of earlier turns count as well.
        if not Counter(gold_results) <= Counter(self.results):
            return "multi_turn:execution_response_mismatch"
        return ""


def _create_objects(row: Mapping[str, Any]) -> dict[str, Any]:
    """Create the objects of a task in their initial state, by the name of their class."""
    objects = {}
    for class_name in row["involved_classes"]:
        module = import_official(f"{SOURCES}.{MODULES[class_name]}")
        instance = getattr(module, class_name)()
        objects[class_name] = instance
        if class_name != STATELESS:
            scenario = copy.deepcopy(row["initial_config"].get(class_name, {}))
            instance._load_scenario(scenario, long_context="long_context" in row["id"])
    return objects


def _has_state_of(instance: Any, gold_object: Any) -> bool:
    """Return whether all public attributes of `gold_object` are equal in `instance`.

    What cannot be compared, such as a folder within itself, is not equal.
    """
    try:
        return all(
            getattr(instance, name) == value
            for name, value in vars(gold_object).items()
            if not name.startswith("_")
        )
    except Exception:
        return False


# -- the official package ----------------------------------------------------------------------


def import_official(path: str) -> Any:
    """Return the module `path` of the official package; raise EnvFailure if it cannot."""
    try:
        return importlib.import_module(f"{PACKAGE}.{path}")
    except ImportError as error:
        raise EnvFailure(f"{PACKAGE}.{path} cannot be imported: {error}") from error


@cache
def _import_checker() -> Any:
    """Import the official checker of single replies, without the clients of models.

    The checker asks a table of all models whether one writes "_" for "." in names. Importing that
    table would import every vendor's client, so an empty stand-in takes its place meanwhile.
    """
    table_name = f"{PACKAGE}.constants.model_config"
    stand_in = ModuleType(table_name)
    vars(stand_in)["MODEL_CONFIG_MAPPING"] = defaultdict(
        lambda: SimpleNamespace(underscore_to_dot=False)
    )
    original = sys.modules.get(table_name)
    sys.modules[table_name] = stand_in
    try:
        return import_official("eval_checker.ast_eval.ast_checker")
    finally:
        del sys.modules[table_name]
        if original is not None:
            sys.modules[table_name] = original
