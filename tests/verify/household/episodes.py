"""Episodes that the real engine wrote down, replayed: the same texts, commands, rewards and ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turngym.envs.household.env import ALFWorldEnv
from turngym.envs.household.play import commands, intro, step
from turngym.envs.rows import json_rows
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.household.player import BLANK
from turngym.tests.verify.rows import Row, Tally, first

Pair = tuple[str, Any, Any]  # what, as it should be (None where that is not known), as it is

ENDLESS = 1_000_000  # turns: recorded episodes end when they are won, or are left


@dataclass(frozen=True)
class Moment:
    """What was seen after an action; None where the record does not say."""

    action: str
    observation: str
    admissible: list[str] | None = None
    reward: float | None = None
    done: bool | None = None
    won: bool | None = None


@dataclass(frozen=True)
class Episode:
    """A recorded episode. `id` names it, `game` is the id of its game, empty where the record does not say."""

    where: str
    id: str
    game: str
    opening: str
    admissible: list[str] | None
    moments: list[Moment]


def read_episodes(paths: Sequence[Path]) -> list[Episode]:
    """Return the episodes of JSONL files.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a row is no episode; the message names it.
    """
    found = []
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist; --episodes names files of recorded episodes"
            )
        found += [episode_of_row(row, f"{path.name}:{number}") for number, row in json_rows(path)]
    return found


def episode_of_row(row: Any, where: str) -> Episode:
    """Return the episode of one row, in the form of the reference episodes or of the demonstrations."""
    try:
        moments = [
            Moment(
                *(taken["action"], taken["observation"], taken.get("admissible")),
                *(taken.get("reward"), taken.get("done"), taken.get("won")),
            )
            for taken in row["steps"]
        ]
        game = row.get("game_id", "")
        return Episode(
            where, row.get("id", game), game, row["init_obs"], row.get("init_admissible"), moments
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{where} is no recorded episode ({error!r}); it needs init_obs and steps of action and observation"
        ) from None


def replay_rows(catalogue: Catalogue, episodes: Iterable[Episode], whose: str) -> Iterator[Row]:
    """Count the episodes, then the steps, that are replayed without a difference."""
    seen, wrong, steps, short, said = 0, 0, 0, 0, list[str]()
    for episode in episodes:
        found = differences(catalogue, episode)
        seen, steps = seen + 1, steps + len(episode.moments)
        wrong, short = (
            wrong + bool(found),
            short + len([turn for turn in found if turn]),
        )  # the opening is no step
        said += [f"{episode.id} {what}" for what in dict.fromkeys(found.values())]
    what = "observation, admissible commands, reward, done and won"
    yield Row(f"{whose}: episodes replayed byte for byte", seen - wrong, seen, first(said, 3))
    yield Row(f"{whose}: steps with the same {what}", steps - short, steps)


def blank_row(catalogue: Catalogue, games: int = 20) -> Row:
    """Count the blank commands and their kin that the environment answers as the real engine does."""
    said = Tally(
        "blank commands, control characters and articles are answered as in the real engine"
    )
    for number in range(0, len(catalogue), max(len(catalogue) // games, 1)):
        env = catalogue.env([number], max_turns=ENDLESS)
        env.reset(seed=0, options={"task": 0})
        for command in BLANK:
            before = env.state
            text, reward, ended, *_ = env.step(command)
            as_real = (text, reward, ended) == (
                "Nothing happens.",
                0,
                False,
            ) and env.state == before
            said.add(repr(command), "" if as_real else text)
    return said.row()


def differences(catalogue: Catalogue, episode: Episode) -> dict[int, str]:
    """Return what was otherwise, by turn (0 for the opening): what was expected and what came."""
    number = catalogue.find(episode.game)
    if number is None:
        return dict.fromkeys(
            range(len(episode.moments) + 1), f"its game {episode.game!r} is in none of the files"
        )
    env = catalogue.env([number], max_turns=ENDLESS)
    opening, _ = env.reset(seed=0, options={"task": 0})
    world, state = env.world, env.state
    if world is None or state is None:
        raise RuntimeError("reset() has made no world")
    found: dict[int, str] = {}
    pairs: list[Pair] = [
        ("opening", episode.opening, intro(world)),
        ("opening of the environment", episode.opening, opening),
    ]
    pairs.append(("admissible commands", episode.admissible, commands(world, state)))
    _note(found, 0, "", pairs)
    for turn, moment in enumerate(episode.moments, start=1):
        state, text = step(world, state, moment.action)
        pairs = [("observation", moment.observation, text), *_through(env, moment)]
        pairs += [
            ("won", moment.won, world.is_won(state)),
            ("admissible commands", moment.admissible, commands(world, state)),
        ]
        _note(found, turn, moment.action, pairs)
    return found


def _through(env: ALFWorldEnv, moment: Moment) -> list[Pair]:
    """Return what the environment makes of the same action; tags and several lines are its own to answer."""
    if not env.live:
        return [("what comes after the end", "nothing", moment.action)]
    text, reward, ended, _, info = env.step(moment.action)
    pairs: list[Pair] = [("reward", moment.reward, reward), ("done", moment.done, ended)]
    if info["command"] is not None:
        pairs.append(("observation of the environment", moment.observation, text))
    return pairs


def _note(found: dict[int, str], turn: int, action: str, pairs: Sequence[Pair]) -> None:
    for what, want, got in pairs:
        if want is not None and want != got:
            if isinstance(want, list):
                want, got = (
                    sorted(set(want) - set(got)) or want,
                    sorted(set(got) - set(want)) or got,
                )
            found.setdefault(
                turn, f"step {turn} {action!r}: {what} should be {want!r} and is {got!r}"
            )
