from turngym.envs.qa.task import QATask
from turngym.envs.tasks import Task


def test_a_task_shows_nothing_that_leads_to_its_answer():
    task = QATask("t-1", "Who?", "Bzi Lom", passages=("person-1",), queries=("Zgor founder",))
    assert isinstance(task, Task) and task.golds == ("Bzi Lom",)
    assert repr(task) == "QATask(id='t-1', prompt='Who?')"


def test_passages_and_queries_may_be_unknown():
    assert (QATask("t", "Who?", "x").passages, QATask("t", "Who?", "x").queries) == ((), ())
