import hashlib
import json
import lzma

import pytest

from turngym.envs.household.game import game_of_row, read_game
from turngym.envs.household.play import intro


@pytest.fixture
def official(shared_data, tmp_path):
    """Writes a row as the official file it is from, in the folders it is from."""
    common = json.loads((shared_data / "household" / "game_common.json").read_text())

    def write(row, **changes):
        data = {
            "pddl_domain": common["pddl_domain"],
            "grammar": common["grammar_template"].replace("@@TASK@@", row["task"]),
            "pddl_problem": row["pddl_problem"],
            "solvable": row["solvable"],
            "walkthrough": row["walkthrough"],
        }
        path = tmp_path / "json_2.1.1" / row["id"] / "game.tw-pddl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data | changes))
        return path

    return write


def test_an_official_file_and_its_row_are_the_same_game(shared_data, official):
    with lzma.open(shared_data / "household" / "games_valid_seen_A.jsonl.xz", "rt") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(5))]
    for row in rows:
        path = official(row)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]
        assert read_game(path) == game_of_row(row, "here")


def test_what_a_row_does_not_say_is_left_open(row):
    game = game_of_row({"task": row["task"], "pddl_problem": row["pddl_problem"]}, "games.jsonl:1")
    assert (game.id, game.split, game.task_type, game.walkthrough, game.solvable) == (
        "games.jsonl:1",
        "",
        "",
        (),
        True,
    )
    assert not game_of_row({**row, "solvable": False}, "").solvable


def test_gold_is_not_in_what_a_game_prints(game):
    assert game.walkthrough and "take" not in repr(game) and "define" not in repr(game)


def test_the_text_is_that_of_the_file_or_another(row, official, game):
    data = json.loads(official(row).read_text())
    # What alfworld's own patch did to the games of before, undone.
    grammar = (
        data["grammar"].partition("action help")[0].replace("move {o} to {r}", "put {o} in/on {r}")
    )
    grammar = grammar.replace(
        "You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}."
    )
    grammar = grammar.replace("You arrive at {r.name}.", "You arrive at {lend.name}.")
    domain = data["pddl_domain"].partition("(:action help")[0] + ")"
    old = read_game(official(row, grammar=grammar, pddl_domain=domain))
    assert (old.text, game.text) == ("old", "current")
    assert old.walk()[-1] == game.walk("old")[-1] == "put apple 2 in/on sidetable 1"
    assert old.walk("current") == game.walk() == row["walkthrough"]
    assert old.world().dialect.put == "put" and old.world("current").dialect.put == "move"


def test_a_task_in_quotes_is_read_as_it_was_written(row, official):
    grammar = json.loads(official(row).read_text())["grammar"]
    game = read_game(official(row, grammar=grammar.replace(row["task"], 'Say \\"hi\\".')))
    assert game.task == 'Say "hi".' and intro(game.world()).endswith('Say "hi".')


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pddl_domain": "(define (domain other))"}, "its pddl_domain differs from ALFWorld's"),
        ({"grammar": "none"}, 'its grammar has no rule "task"'),
        ({"grammar": '"task": [{"rhs": "x"}]'}, "its grammar is not ALFWorld's"),
        ({"pddl_problem": 3}, "field 'pddl_problem' is a int; a game needs it as text"),
        ({"walkthrough": [1]}, "it is a list of commands"),
    ],
)
def test_an_official_file_of_other_rules_is_refused(row, official, changes, words):
    path = official(row, **changes)
    with pytest.raises(ValueError, match=words) as caught:
        read_game(path)
    assert str(path) in str(caught.value)


def test_what_is_no_game_is_refused(tmp_path, row):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_game(tmp_path / "game.tw-pddl")
    for text, words in (
        ("{", "is not JSON"),
        ("[]", "is a list; a game is a JSON object"),
        ("{}", "'grammar' is missing"),
    ):
        (tmp_path / "game.tw-pddl").write_text(text)
        with pytest.raises(ValueError, match=words):
            read_game(tmp_path / "game.tw-pddl")
    with pytest.raises(ValueError, match=r"^here is a list"):
        game_of_row([], "here")
    with pytest.raises(
        ValueError, match=r"^here has task_type 'cook'; the task types are pick_and_place_simple, "
    ):
        game_of_row({**row, "task_type": "cook"}, "here")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("(define", "(undefine", "its pddl_problem is no PDDL problem"),
        ("(:goal", "(:gaol", "has no :goal"),
        ("(inReceptacle Apple_bar_1 ", "(inReceptacle Agent_bar_1 ", "is no house of ALFWorld"),
        ("(isHot ?o)", "(isWarm ?o)", "has a goal that none of ALFWorld's six task types states"),
    ],
)
def test_a_game_that_does_not_parse_is_named(row, old, new, words):
    assert old in row["pddl_problem"]
    game = game_of_row({**row, "pddl_problem": row["pddl_problem"].replace(old, new)}, "here")
    with pytest.raises(ValueError, match=words) as caught:
        game.world()
    assert str(caught.value).startswith(f"game {row['id']}: ")


def test_a_game_that_any_command_would_win_is_refused(row):
    text = row["pddl_problem"]
    won = text.replace("(:init", "(:init (isHot Apple_bar_1) (isHot Apple_bar_2)")
    with pytest.raises(
        ValueError, match=f"game {row['id']}: its goal holds before a command is given"
    ):
        game_of_row({**row, "pddl_problem": won}, "here").world()
    twice = text.replace(
        "(:init", "(:init (objectType x_dot_y AppleType) (objectType x.y AppleType)"
    )
    twice = twice.replace("(:objects", "(:objects x_dot_y - object x.y - object")
    with pytest.raises(
        ValueError,
        match=r"its pddl_problem calls two things 'x\.y ', and a command could mean either",
    ):
        game_of_row({**row, "pddl_problem": twice}, "here").world()
