import resource

from turngym.tools.python import limits

HEAD = "import resource as r\nfrom turngym.tools.python import limits\n"


def test_confining_binds_and_lower_limits_of_the_machine_stay(bare):
    script = """
r.setrlimit(r.RLIMIT_FSIZE, (4096, 8192))
limits.confine()
limits.confine()
limits.limit_memory(2**30)
limits.limit_memory(2**31)
kinds = (r.RLIMIT_FSIZE, r.RLIMIT_NPROC, r.RLIMIT_CORE, r.RLIMIT_MSGQUEUE, r.RLIMIT_MEMLOCK, r.RLIMIT_AS)
print(json.dumps([r.getrlimit(kind) for kind in kinds]))
"""
    values = [8192, limits.PROCESSES, 0, 0, 0, 2**30]
    assert bare(HEAD + script) == [[value, value] for value in values]


def test_open_files_are_limited(bare):
    script = "limits.confine()\nprint(json.dumps(r.getrlimit(r.RLIMIT_NOFILE)))"
    assert bare(HEAD + script) == [min(limits.OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])] * 2
