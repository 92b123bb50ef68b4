import pytest

from turngym.envs.household.game import TASK_TYPES
from turngym.envs.household.house import Chore, House, Receptacle, Thing
from turngym.envs.household.pddl import parse_problem, to_pddl
from turngym.envs.household.play import NOTHING_HAPPENS, intro, step
from turngym.envs.household.world import get_dialect, make_world

PLACE, LOOK, CLEAN, HEAT, COOL, TWO = TASK_TYPES
STANDING = (
    Receptacle("desk", 1, 1),
    Receptacle("drawer", 1, 2),
    Receptacle("drawer", 2, 2),
    Receptacle("sinkbasin", 1, 3),
    Receptacle("fridge", 1, 4),
    Receptacle("microwave", 1, 5),
)
LYING = (
    Thing("mug", 1, 2),
    Thing("mug", 2, 1),
    Thing("apple", 1, 4),
    Thing("apple", 2, 5, clean=True),
    Thing("desklamp", 1, 0),
)


@pytest.fixture
def build():
    """Makes a house with a chore about a mug."""

    def make(task_type=PLACE, target="desk", things=LYING, number=0):
        return House(
            Chore(task_type, "mug", target), 0, ("study", "kitchen"), STANDING, things, number
        )

    return make


def world_of(house, text="current"):
    return make_world(house.problem(), house.task, get_dialect(text))


def test_what_the_game_says_of_it(build):
    world = world_of(build())
    assert intro(world).split("\n\n")[1:] == [
        "You are in the middle of a room. Looking quickly around you, you see a desk 1, a drawer 2, a drawer 1, "
        "a fridge 1, a microwave 1, and a sinkbasin 1.",
        "Your task is to: put a mug in desk.",
    ]
    state, said = world.start, []
    for command in (
        "go to drawer 2",
        "open drawer 2",
        "look",
        "take mug 1 from drawer 2",
        "examine mug 1",
    ):
        state, answer = step(world, state, command)
        said.append(answer)
    assert said == [
        "You arrive at drawer 2. The drawer 2 is closed.",
        "You open the drawer 2. The drawer 2 is open. In it, you see a mug 1.",
        "You are facing the drawer 2, and drawer 1. Next to it, you see nothing.",
        "You pick up the mug 1 from the drawer 2.",
        "This is a normal mug 1. In it, you see nothing.",
    ]


def test_things_lie_there_in_their_states(build):
    world = world_of(build())
    one, two = (1 << world.thing_by_name[f"apple {number}"] for number in (1, 2))
    assert (world.start.cool, world.start.hot, world.start.clean) == (one, two, two)
    assert (
        world.toggleable == 1 << world.thing_by_name["desklamp 1"]
        and not world.pickupable & world.toggleable
    )
    in_states = (Thing("mug", 1, 4, clean=True), Thing("mug", 2, 5))
    wanted = world_of(build(HEAT, "sinkbasin", things=in_states)).start
    assert (wanted.cool, wanted.hot, wanted.clean) == (
        0,
        0,
        0,
    )  # what is wanted still has to be done


@pytest.mark.parametrize(
    ("task_type", "target", "number", "walk"),
    [
        (
            PLACE,
            "desk",
            0,
            "go to drawer 2;open drawer 2;take mug 1 from drawer 2;go to desk 1;move mug 1 to desk 1",
        ),
        (
            LOOK,
            "desklamp",
            0,
            "go to drawer 2;open drawer 2;take mug 1 from drawer 2;go to desk 1;use desklamp 1",
        ),
        (
            COOL,
            "microwave",
            5,
            "go to drawer 2;open drawer 2;take mug 1 from drawer 2;go to fridge 1;cool mug 1 with fridge 1;"
            "go to microwave 1;open microwave 1;move mug 1 to microwave 1",
        ),
        (
            TWO,
            "desk",
            0,
            "go to drawer 2;open drawer 2;take mug 1 from drawer 2;go to desk 1;move mug 1 to desk 1;"
            "go to drawer 1;open drawer 1;take mug 2 from drawer 1;go to desk 1;move mug 2 to desk 1",
        ),
    ],
)
@pytest.mark.parametrize("text", ["current", "old"])
def test_the_walkthrough_wins_at_its_last_command_and_not_before(
    build, task_type, target, number, walk, text
):
    house = build(task_type, target, number=number)
    assert list(house.walkthrough()) == walk.split(";")
    world = world_of(house, text)
    state = world.start
    for command in house.walkthrough():
        assert not world.is_won(state)
        command = (
            command.replace("move", "put").replace(" to ", " in/on ")
            if text + command[0] == "oldm"
            else command
        )
        state, answer = step(world, state, command)
        assert answer != NOTHING_HAPPENS
    assert world.is_won(state)


def test_nobody_goes_where_he_is_nor_opens_what_is_open():
    standing = (Receptacle("cabinet", 1, 1), Receptacle("shelf", 1, 1))
    things = (Thing("cup", 1, 0), Thing("cup", 2, 0))
    house = House(Chore(TWO, "cup", "shelf"), 1, ("kitchen",), standing, things, 1)
    assert tuple(house.walkthrough()) == (
        "go to cabinet 1",
        "open cabinet 1",
        "take cup 1 from cabinet 1",
        "move cup 1 to shelf 1",
        "take cup 2 from cabinet 1",
        "move cup 2 to shelf 1",
    )


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_its_pddl_reads_back(build, task_type):
    problem = build(task_type, "desklamp" if task_type == LOOK else "desk").problem()
    assert parse_problem(to_pddl(problem)) == problem


def test_its_signature_tells_tasks_apart(build):
    def changed(i, **values):
        return build(things=(*LYING[:i], LYING[i]._replace(**values), *LYING[i + 1 :]))

    one = build()
    others = [
        build(CLEAN),
        build(target="sinkbasin"),
        changed(2, inside=0),
        changed(2, clean=True),
        build(things=LYING[:4]),
    ]
    assert len({house.signature for house in (one, *others)}) == 6
    again = House(one.chore, 1, ("bedroom",), STANDING, LYING[::-1], 0)
    assert again.signature == one.signature  # other words, the same task
    backwards = House(
        one.chore,
        0,
        one.rooms,
        STANDING[::-1],
        tuple(t._replace(inside=5 - t.inside) for t in LYING),
        5,
    )
    assert backwards.signature == one.signature and backwards.problem() == one.problem()
