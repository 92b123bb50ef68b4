"""Reading a corpus: texts in full length, predicates that are known, placeholders with a value."""

from pathlib import Path

from turngym.tests.verify.sandbox.corpus import placed, read_programs
from turngym.tests.verify.sandbox.predicates import KNOWN

HERE = Path(__file__).parent


def test_our_own_programs_are_python_with_known_predicates():
    programs = read_programs(HERE / "programs.jsonl", KNOWN)
    values = dict.fromkeys(
        ("CANARY_FILE", "OUTSIDE_DIR", "HOST_PORT", "FREE_PORT", "PARENT_PID", "HOST"), "1"
    )
    for program in programs:
        compile(placed(program.code, values), program.id, "exec")
    assert {promise.name for program in programs for promise in program.promises} >= {
        "pid_cap",
        "disk_cap",
        "isolated",
    }
