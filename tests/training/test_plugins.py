"""What installed packages declare is taken wherever a name of turngym's own is."""

import json
import shlex
import subprocess
import sys

import gymnasium
import pytest

from turngym import __main__ as cli
from turngym.envs import registry
from turngym.tests.support.packages import install, working_in
from turngym.tools import plugins
from turngym.training import methods
from turngym.training.cli.compare import Compare
from turngym.training.comparison import claims, diagnosis, plan
from turngym.training.comparison.tune import check_tuning
from turngym.training.runs.config import (
    TrainConfig,
    adjusted,
    read_recipe,
    recipe_names,
    reserved_of,
)
from turngym.training.runs.run import resume_hint

METHODS = '''"""Methods that I wrote."""

from turngym.training.control.control import Control


def turn_decay(keep: float = 0.9) -> Control:
    """Later turns count less."""
    return Control(name="turn-decay", shape=lambda terms, batch, now, state: terms)


def my_advantage() -> Control:
    """The score itself."""
    return Control(name="my-advantage", credit=lambda batch, state: batch.score)


def my_clip() -> Control:
    """A clip that needs a second pass.

    Recipe: method = "dr-grpo,my-clip", updates = 2
    """
    return Control(name="my-clip", shape=lambda terms, batch, now, state: terms)


def crooked() -> Control:
    """A recipe that is none.

    Recipe: two passes
    """
    return Control(name="crooked")


def elsewhere() -> Control:
    """A recipe of something else.

    Recipe: method = "grpo"
    """
    return Control(name="elsewhere")
'''
WORLDS = '''from turngym.envs import Reply, StopReason, TextEnv
from turngym.envs.tasks import choose_index


class Parrot(TextEnv):
    """Say the word again. It is in the question."""

    tasks = range(40)

    def on_reset(self, rng, options):
        index = choose_index(rng, options, self.tasks)
        self.word, self.task_id = str(index), f"word-{index}"
        return f"Say {self.word}"

    def on_step(self, text):
        return Reply("", reward=float(text.strip() == self.word), stop=StopReason.ANSWERED)

    def gold(self):
        return [self.word]
'''
POINTS = {
    "turn-decay": "my_methods:turn_decay",
    "my-advantage": "my_methods:my_advantage",
    "my-clip": "my_methods:my_clip",
    "crooked": "my_methods:crooked",
    "elsewhere": "my_methods:elsewhere",
    "gone": "my_methods:gone",
    "raising": "my_raising:f",
    "math-python": "my_methods:turn_decay",
    "grpo": "my_methods:turn_decay",
    "twice": "my_methods:turn_decay",
}


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Two installed packages with methods, an environment and a tool; what they register is forgotten again."""
    before = dict(gymnasium.registry)
    site = tmp_path / "site"
    site.mkdir()
    (site / "my_methods.py").write_text(METHODS)
    (site / "my_worlds.py").write_text(WORLDS)
    (site / "my_raising.py").write_text("1 / 0\n")
    here = tmp_path / "here"
    here.mkdir()
    with working_in(here):
        monkeypatch.syspath_prepend(str(site))
        install(site, "my-methods", methods.GROUP, **POINTS)
        install(site, "other-methods", methods.GROUP, twice="my_methods:turn_decay")
        install(
            site,
            "my-worlds",
            registry.GROUP,
            **{"my/Parrot-v0": "my_worlds:Parrot", "my/Gone-v0": "my_w:P"},
        )
        install(site, "my-tools", plugins.TOOLS_GROUP, shout="my_tools:shout")
        yield site
        for name in ("my_methods", "my_worlds", "my_raising"):
            sys.modules.pop(name, None)
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def refused(line, capfd):
    """What a command that is refused says, in its one line."""
    with pytest.raises(SystemExit) as left:
        cli.main(shlex.split(line))
    out, err = capfd.readouterr()
    assert (left.value.code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("turn-decay", {"method": "grpo,turn-decay"}),
        ("my-advantage", {"method": "my-advantage"}),
        ("my-clip", {"method": "dr-grpo,my-clip", "updates": 2}),
    ],
)
def test_a_method_of_a_package_has_a_recipe(packages, name, recipe):
    assert methods.plugin_recipe(name) == recipe
    assert read_recipe(name) == TrainConfig().changed(**recipe)
    assert adjusted(name, {"steps": 3})[0].schedule.steps == 3
    assert name in recipe_names()


def test_a_name_of_turngym_itself_is_no_plugin_s(packages):
    assert methods.plugin_recipe("grpo") == {} and read_recipe("grpo").method == "grpo"
    assert read_recipe("math-python") == TrainConfig().changed(
        difficulty=(1, 2),
        option=("max_turns=3",),
        steps=60,
        method=read_recipe("math-python").method,
    )
    assert "my_methods" not in sys.modules


def test_a_recipe_of_a_plugin_is_joined_with_others(packages):
    config = read_recipe("household+turn-decay", allowed=["policy=runs/warm/household"])
    assert (config.env, config.method) == ("turngym/Household-v0", "grpo,turn-decay")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("turn-decoy", "there is no recipe 'turn-decoy'; did you mean 'turn-decay'?"),
        ("Turn-Decay", "there is no recipe 'Turn-Decay'; did you mean 'turn-decay'?"),
        (
            "gone",
            "the method gone of the package my-methods 'my_methods:gone': the module my_methods (",
        ),
        ("raising", "importing my_raising raises ZeroDivisionError: division by zero ("),
        (
            "twice",
            "twice is declared by the packages my-methods and other-methods; uninstall all but one",
        ),
        ("crooked", "the line 'Recipe: two passes' of its docstring is not TOML: "),
        (
            "elsewhere",
            "of its docstring does not run elsewhere; write TOML with commas, such as Recipe: method = ",
        ),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named_by_every_command(packages, name, message, capfd):
    for command in ("train", "compare grpo", "diagnose grpo"):
        assert message in refused(f"{command} {name}", capfd), command


def test_a_comparison_and_a_diagnosis_take_it(packages, tmp_path):
    found = plan.plan(["grpo", "turn-decay"], "math-python", 1, {"steps": 1}, str(tmp_path / "c"))
    assert [trial.config.method for trial in found.trials] == ["grpo", "grpo,turn-decay"]
    found = diagnosis.plan(
        ["grpo", "my-clip"], ["late-bloomer"], 1, 0, 2, str(tmp_path / "d"), resume=False
    )
    assert [trial.config.method for trial in found.trials] == ["grpo", "dr-grpo,my-clip"]


def test_a_comparison_is_on_an_environment_as_with_env(packages):
    on, named = (
        Compare(methods=("grpo",), on="my/Parrot-v0"),
        Compare(methods=("grpo",), env="my/Parrot-v0"),
    )
    assert on.base == named.base == "math-python" and on.changes == named.changes == {
        "env": "my/Parrot-v0"
    }
    with pytest.raises(
        ValueError, match="--on my/Parrot-v0 and --env my/Gone-v0 both name an environment"
    ):
        Compare(methods=("grpo",), on="my/Parrot-v0", env="my/Gone-v0").changes  # noqa: B018 (it raises)


def test_a_file_names_none(packages, tmp_path):
    """Neither by its own name, nor as a part of another recipe's."""
    base = plan.plan(["grpo"], "math-python", 1, {"steps": 1}, str(tmp_path / "c"))
    sys.modules.pop("my_methods", None)
    for name in ("turn-decay", "turn-decay+grpo", "grpo+turn-decay"):
        (tmp_path / "tune.toml").write_text(f'seeds = [9]\n[settings]\ngrpo = ["{name}"]\n')
        with pytest.raises(ValueError, match="of another package; a file cannot choose that"):
            check_tuning(str(tmp_path / "tune.toml"), base)
    (tmp_path / "mine.toml").write_text('method = "grpo,turn-decay"\n')
    with pytest.raises(ValueError, match="add --method grpo,turn-decay to the command"):
        read_recipe(str(tmp_path / "mine.toml"))
    with pytest.raises(
        ValueError, match="name it in place of the recipe: turngym compare grpo,turn-decay"
    ):
        plan.plan(
            ["grpo", str(tmp_path / "mine.toml")],
            "math-python",
            1,
            {"steps": 1},
            str(tmp_path / "e"),
        )
    assert "my_methods" not in sys.modules


def test_a_table_of_claims_names_one_that_the_command_names_too(packages, tmp_path):
    table = tmp_path / "mine.toml"
    table.write_text(
        'base = { steps = 2 }\narms = { a = { method = "grpo,turn-decay" } }\n[[claim]]\nname = "c"\nsays = "s"\n'
        'paper = "p"\nrows = [{ of = "mean", arm = "a" }]\n'
    )
    with pytest.raises(
        ValueError, match="If you trust its code, add --method grpo,turn-decay to the command"
    ):
        claims.plan(str(table), 1, 0, str(tmp_path / "out"), resume=False)
    assert "my_methods" not in sys.modules
    allowed = ("method=grpo,turn-decay",)
    study = claims.plan(str(table), 1, 0, str(tmp_path / "out"), resume=False, allowed=allowed)
    assert [trial.config.method for trial in study.comparison.trials] == ["grpo,turn-decay"]


def test_how_to_go_on_names_plugins_that_this_process_has_imported(packages, tmp_path):
    config = TrainConfig().changed(
        env="my/Parrot-v0", method=read_recipe("turn-decay").method, out=str(tmp_path)
    )
    registry.make(config.env).close()
    assert reserved_of(config) == []
    (tmp_path / "config.toml").touch()
    flags = " --env my/Parrot-v0 --method grpo,turn-decay"
    assert (
        resume_hint(tmp_path, config)
        == f"continue with: turngym train --resume --out {tmp_path}{flags}"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "train --env my/Parot-v0",
            "unknown environment 'my/Parot-v0'; did you mean 'my/Parrot-v0'?",
        ),
        (
            "train my/Parrot-v0",
            "there is no recipe 'my/Parrot-v0'; that is an environment: turngym train --env my/P",
        ),
        (
            "eval my/Gone-v0 --policy expert",
            "environment my/Gone-v0 of the package my-worlds 'my_w:P': there is no",
        ),
        (
            "check my/Gone-v0",
            "environment my/Gone-v0 of the package my-worlds 'my_w:P': there is no module my_w",
        ),
        (
            "train --option tools=shoot",
            "no tool is called 'shoot'; did you mean 'shout'? installed packages declare",
        ),
        (
            "train --option tools=shout",
            "the tool shout of the package my-tools 'my_tools:shout': there is no module",
        ),
        (
            "train --method grpo,turn-decay:kep=1",
            "no parameter of turn-decay is called 'kep'; did you mean 'keep'?",
        ),
        ("compare grpo turn-decay turn-decay", "method 'turn-decay' is named twice"),
        (
            "compare grpo --on my/Parot-v0",
            "unknown environment 'my/Parot-v0'; did you mean 'my/Parrot-v0'?",
        ),
    ],
)
def test_a_mistake_about_one_is_a_line(packages, line, message, capfd):
    assert message in refused(line, capfd)


def test_environments_and_methods_are_listed_without_torch(packages):
    code = (
        "import sys\nfrom turngym.__main__ import main\nfor name in ('envs', 'methods'):\n    try:\n"
        "        main([name])\n    except SystemExit:\n        pass\n"
        "print([name for name in ('torch', 'my_methods', 'my_worlds', 'my_raising') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(packages), "COLUMNS": "300", "PATH": ""},
    )
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "my/Parrot-v0 Say the word again my-worlds" in lines
    assert "my/Gone-v0 broken: there is no module my_w my-worlds" in lines
    assert "turn-decay Later turns count less (package my-methods)" in lines
    assert lines[-1] == "[]", done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_an_environment_and_a_method_of_packages_are_trained_compared_and_evaluated(
    packages, tmp_path, capfd
):
    short = "--steps 2 --prompts 2 --group 2 --eval-tasks 2 --max-tokens 4"

    def run(line):
        with pytest.raises(SystemExit) as left:
            cli.main(shlex.split(line))
        assert left.value.code == 0, capfd.readouterr().err

    run(f"train turn-decay --env my/Parrot-v0 {short} --out run")
    run("check my/Parrot-v0")
    run("eval my/Parrot-v0 --policy run --episodes 2 --out evaluated")
    recipe = packages.parent / "here" / "small.toml"
    recipe.write_text("steps = 2\nprompts = 2\ngroup = 2\neval_tasks = 2\nmax_tokens = 4\n")
    run(
        "compare grpo turn-decay --on small.toml --env my/Parrot-v0 --seeds 1 --final 8 --workers 2 --out compared"
    )
    data = json.loads((packages.parent / "here" / "compared" / "compare.json").read_text())
    assert data["methods"]["turn-decay"]["method"] == "grpo,turn-decay"
