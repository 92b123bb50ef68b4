"""The verdicts of the Berkeley Function-Calling Leaderboard.

A conversation is judged turn by turn while it is played; single replies go to the official checker itself.
"""

import ast
import copy
import importlib
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

from ..core import EnvFailure
from .calls import described, read, run

PACKAGE = "bfcl_eval"
SOURCES = f"{PACKAGE}.eval_checker.multi_turn_eval.func_source_code"
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

    `error` is the official error type, empty while nothing is wrong.

    Raises:
        EnvFailure: the package cannot be imported, or makes no object of a class.
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
        """Carry out calls and return what each says."""
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
            elif not _contained(results, self.results):
                self.error = "multi_turn:execution_response_mismatch"
        self.turn, self.called = self.turn + 1, False


def _objects(row: Mapping[str, Any]) -> dict[str, Any]:
    objects = {}
    for name in row["involved_classes"]:
        objects[name] = one = getattr(importlib.import_module(f"{SOURCES}.{MODULES[name]}"), name)()
        if name != STATELESS:
            scenario = copy.deepcopy(row["initial_config"].get(name, {}))
            one._load_scenario(scenario, long_context="long_context" in row["id"])
    return objects


def _same(one: Any, right: Any) -> bool:
    return all(getattr(one, name) == value for name, value in vars(right).items() if not name.startswith("_"))


def _contained(results: Sequence[str], all_results: Sequence[str]) -> bool:
    """Return whether `all_results` hold all `results`, as often as they occur."""
    left = list(all_results)
    for result in results:
        if result not in left:
            return False
        left.remove(result)
    return True


def judge(category: str, functions: list[dict[str, Any]], gold: list[Any], reply: str) -> str:
    """Return the official error type of a single reply, empty where it is right.

    A reply that makes the official checker raise an error is wrong, as `ast_checker:error`.

    Raises:
        EnvFailure: the checker cannot be imported.
    """
    calls = read(reply)
    if category == "irrelevance":
        return "irrelevance_error:decoder_success" if calls and _describes(calls) else ""
    if calls is None or (found := _describes(calls)) is None:
        return "ast_decoder:decoder_failed"
    checker = _checker()
    try:
        verdict = checker.ast_checker(functions, found, gold, checker.Language.PYTHON, category, "turngym")
    except Exception:  # such as a value that no dictionary takes as a key
        return "ast_checker:error"
    return "" if verdict["valid"] else str(verdict["error_type"])


def _describes(calls: Sequence[ast.Call]) -> list[dict[str, Any]] | None:
    try:
        return described(calls)
    except (ValueError, TypeError, ArithmeticError):
        return None


@cache
def _checker() -> ModuleType:
    """Return the official checker; the table of models that it asks for would import the clients of all of them."""
    name = f"{PACKAGE}.constants.model_config"
    known = sys.modules.get(name)
    stub = ModuleType(name)
    vars(stub)["MODEL_CONFIG_MAPPING"] = defaultdict(lambda: SimpleNamespace(underscore_to_dot=False))
    sys.modules[name] = stub
    try:
        return importlib.import_module(f"{PACKAGE}.eval_checker.ast_eval.ast_checker")
    except ImportError as error:
        raise EnvFailure(f"the checker of {PACKAGE} cannot be imported: {error}") from error
    finally:
        if known is None:
            del sys.modules[name]
        else:
            sys.modules[name] = known
