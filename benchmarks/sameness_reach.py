"""The parts of turngym that `sameness.py` needs from the inside, by the names that it uses for them.

This is the one place that knows where they are: if a part moves, its line here changes and no other file does. What is
public (the command line, Gymnasium's registry, `turngym.tool`) is used directly.
"""

from __future__ import annotations

import pkgutil
from typing import Any

PATHS = {
    # envs: generated problems and tasks
    "KeyedRandom": "turngym.envs.keyed_random.KeyedRandom",
    "PROBLEM_FAMILIES": "turngym.envs.math.problems.families.FAMILIES",
    # envs: graders
    "EXTRACTIONS": "turngym.envs.math.grading.boxed_answer.EXTRACTIONS",
    "MathGrader": "turngym.envs.math.MathGrader",
    "QAGrader": "turngym.envs.qa.grader.QAGrader",
    # tools: formats of calls
    "FORMATS": "turngym.tools.formats.FORMATS",
    "ToolCall": "turngym.tools.formats.ToolCall",
    "contained": "turngym.tools.formats.base.escape_block_ends",
    "foreign_call": "turngym.tools.formats.foreign.find_foreign_call",
    "outside_thoughts": "turngym.tools.thoughts.outside_thoughts",
    "unfenced": "turngym.tools.formats.fenced.remove_fence",
    "without_thoughts": "turngym.tools.thoughts.without_thoughts",
    # agents: chat templates and trajectories
    "Event": "turngym.agents.trajectory.Event",
    "Leaf": "turngym.agents.trajectory.Leaf",
    "Sampling": "turngym.agents.engine.Sampling",
    "Template": "turngym.agents.chat.template.Template",
    "TemplateError": "turngym.agents.chat.template.TemplateError",
    "Tree": "turngym.agents.trajectory.Tree",
    "Turn": "turngym.agents.trajectory.Turn",
    # training: methods and the loss
    "Current": "turngym.training.data.batch.Current",
    "Epoch": "turngym.training.control.control.Epoch",
    "METHODS": "turngym.training.methods.METHODS",
    "Now": "turngym.training.data.batch.Now",
    "Stats": "turngym.training.control.control.Stats",
    "acted": "turngym.training.metrics.actions.acted",
    "advantages": "turngym.training.control.control.advantages",
    "method_parameters": "turngym.training.methods.method_parameters",
    "objective": "turngym.training.loss.objective.objective",
    "pack": "turngym.training.data.packing.pack",
    "scored": "turngym.training.control.control.scored",
    "start_terms": "turngym.training.loss.objective.start_terms",
    # the command line
    "COMMANDS": "turngym.__main__.COMMANDS",
    "main": "turngym.__main__.main",
}


def reach(name: str) -> Any:
    """Return a part of turngym by its name in `PATHS`, importing its module."""
    return pkgutil.resolve_name(PATHS[name])
