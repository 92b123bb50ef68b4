"""The processes behind the Python tool.

- `client`: the parent's handles on the server process, and on the group of a session and its forks
- `supervisor`: the server process, which keeps boundaries ready and enforces their limits
- `boundary`: what confines a session and its forks, and ends with one process
- `worker_factory`: zygotes, the warm interpreters that fork workers
- `sympy_exercise`: uses sympy before the first program does
- `worker`: the process of a session, which confines itself and can fork itself
- `interpreter`: runs programs in one namespace
- `guard`: without namespaces, ends and removes whatever a server and its sessions leave behind
"""
