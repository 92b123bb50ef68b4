"""What `benchmarks/sameness.py` compares, and that it names what changed."""

import json
import re
import struct
from itertools import islice

import gymnasium
import pytest

from turngym.benchmarks import sameness
from turngym.benchmarks.sameness_items import Item, LeftOut, Record, Scope
from turngym.benchmarks.sameness_learning import (
    argument_sets,
    key_paths,
    method_lines,
    methods,
    tensor_names,
)
from turngym.benchmarks.sameness_reach import PATHS, reach
from turngym.benchmarks.sameness_worlds import Place, read_rows, tools, worlds

QUICK = Scope(quick=True, shared=sameness.CHECKOUT / "no folder")


@pytest.fixture
def areas(monkeypatch):
    """Areas to change: their items by name."""
    made = {"words": {"a": "one\ntwo", "b": "three"}, "numbers": {"c": "1"}}

    def area(name):
        return lambda scope: iter([Item(key, text) for key, text in made[name].items()])

    monkeypatch.setattr(sameness, "AREAS", {name: area(name) for name in made})
    return made


def compare(file, capsys, *more):
    status = sameness.main(["--against", str(file), "--only", "words", "numbers", *more])
    return status, capsys.readouterr().out.splitlines()


@pytest.fixture
def file(areas, tmp_path):
    path = tmp_path / "baseline.json"
    assert sameness.main(["--write", str(path), "--only", "words", "numbers"]) == 0
    return path


def test_nothing_changed(file, capsys) -> None:
    capsys.readouterr()
    status, lines = compare(file, capsys)
    assert (status, lines[-1]) == (0, "equal: 3 items in 2 areas")


def test_what_changed_is_named_with_its_line(file, areas, capsys) -> None:
    areas["words"]["a"] = "one\ntoo"
    status, lines = compare(file, capsys)
    assert status == 1 and lines[-1] == "different: 1 of 3 items in 2 areas"
    at = lines.index("  differs: words / a: line 2")
    assert lines[at + 1 : at + 3] == ["      was 'two'", "      now 'too'"]


def test_items_that_came_or_went_are_named(file, areas, capsys) -> None:
    areas["words"]["d"] = areas["words"].pop("b")
    status, lines = compare(file, capsys)
    assert status == 1
    assert {"  differs: words / d: is new", "  differs: words / b: is missing"} <= set(lines)


def test_a_quick_part_does_not_miss_the_other_items(file, areas, capsys) -> None:
    del areas["words"]["b"]
    assert compare(file, capsys, "--quick")[0] == 0


def test_a_full_net_is_not_compared_with_a_quick_file(areas, tmp_path) -> None:
    path = tmp_path / "quick.json"
    sameness.main(["--write", str(path), "--only", "words", "--quick"])
    with pytest.raises(SystemExit, match="was written with --quick"):
        sameness.main(["--against", str(path), "--only", "words"])


def test_one_area_can_be_written_anew(file, areas, capsys) -> None:
    areas["words"]["a"] = areas["numbers"]["c"] = "other"
    sameness.main(["--write", str(file), "--only", "words"])
    status, lines = compare(file, capsys)
    assert status == 1 and lines[-1] == "different: 1 of 3 items in 2 areas"
    with pytest.raises(SystemExit, match="was written without --quick; write another file"):
        sameness.main(["--write", str(file), "--only", "words", "--quick"])


def test_what_a_machine_cannot_make_is_listed(file, areas, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sameness.AREAS, "numbers", lambda scope: iter([LeftOut("c", "no package")]))
    status, lines = compare(file, capsys)
    assert status == 1
    assert {
        "  left out: c: no package",
        "  differs: numbers / c: can no longer be made: no package",
    } <= set(lines)


def test_two_items_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="two items are called 'a'"):
        sameness.AreaItems.make(lambda scope: iter([Item("a", ""), Item("a", "")]), QUICK)


def test_an_unknown_area_is_an_error(capsys) -> None:
    with pytest.raises(SystemExit):
        sameness.main(["--write", "x", "--only", "nothing"])
    assert (
        "there is no area 'nothing'; the areas are problems, environments"
        in capsys.readouterr().err
    )


def test_the_help_names_every_area() -> None:
    described = re.findall(r"^    ([a-z]+)  +\S", sameness.__doc__, re.MULTILINE)
    assert described == list(sameness.AREAS)


def test_the_record_of_a_long_item_shows_the_line_that_changed() -> None:
    lines = [f"line {number} " + "x" * 100 for number in range(500)]
    record = Record.from_json(
        json.loads(json.dumps(Record.of(Item("long", "\n".join(lines))).to_json()))
    )
    assert record.text is None
    assert record.difference(Item("long", "\n".join([*lines[:7], "changed", *lines[8:]]))) == [
        "line 8",
        "  now 'changed'",
    ]
    assert record.difference(Item("long", "\n".join([*lines[:450], "changed"]))) == [
        "behind line 400"
    ]


@pytest.mark.parametrize("name", PATHS)
def test_every_part_is_where_the_table_says(name) -> None:
    assert reach(name) is not None


def test_every_registered_environment_is_in_the_net() -> None:
    ids = {name for name in gymnasium.registry if name.startswith("turngym/")}
    assert ids and {world.env_id for world in worlds() if not world.options or world.games} == ids


def test_the_tool_has_a_schema_from_its_docstring() -> None:
    items = {item.name: item.text for item in islice(tools(QUICK), 2)}
    schema = json.loads(items["schema of a function"])["function"]
    assert schema["description"] == "Book a room."
    assert set(schema["parameters"]["properties"]["place"]["properties"]) == set(
        Place.__annotations__
    )
    assert "needs the argument 'place'" in items["calls of a function"]


def test_every_parameter_of_a_method_is_tried_with_another_value() -> None:
    tried = {name for arguments in argument_sets("epo") for name in arguments}
    assert tried == set(reach("method_parameters")("epo"))


def test_a_method_gives_the_same_lines_again() -> None:
    first, again = (list(method_lines("gigpo", {})) for _ in range(2))
    assert first == again and not any("raises" in line for line in first)


@pytest.mark.parametrize(
    ("name", "arguments"), [("entropy-bonus", {"coef": 0.5}), ("grpo", {"kl_coef": 0.1})]
)
def test_another_coefficient_is_seen_in_the_loss_and_the_gradient(name, arguments) -> None:
    plain, other = (list(method_lines(name, given)) for given in ({}, arguments))
    changed = {
        line.split()[3] for line in set(other) - set(plain) if line.startswith("at the start: ")
    }
    assert {"loss", "gradient"} <= changed


def test_a_plan_is_asked_at_every_event() -> None:
    lines = [line for line in method_lines("aepo", {}) if line.startswith("plans of tree")]
    assert len(lines) == 3 and all('["start", 0, [{' in line for line in lines)


def test_items_of_methods_are_named_by_what_they_are_made_with() -> None:
    names = [item.name for item in islice(methods(QUICK), 3)]
    assert names[0] == "acpo()" and all(name.startswith("acpo(") for name in names)


def test_keys_are_paths_with_types() -> None:
    assert key_paths({"a": [{"b": 1.5}, {"c": None}]}) == {
        "",
        ".a",
        ".a[]",
        ".a[].b: number",
        ".a[].c: NoneType",
    }


def test_names_of_tensors_are_read_from_the_header() -> None:
    header = json.dumps(
        {"__metadata__": {}, "a.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    ).encode()
    assert tensor_names(struct.pack("<Q", len(header)) + header + bytes(8)) == {"a.weight F32 [2]"}


def test_rows_may_hold_any_character(tmp_path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": "x\u2028y"}\n\n{"a": 1}\n', "utf-8")
    assert [row["a"] for row in read_rows(path)] == ["x\u2028y", 1]
    assert read_rows(tmp_path / "none.jsonl") == []
