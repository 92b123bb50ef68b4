"""The processes behind the Python tool.

- `client`: the parent's handles on the server process, and on the group of a session and its forks
- `supervisor`: the server process, which keeps boundaries ready and watches their memory
- `boundary`: what confines a session and its forks, and ends with one process
- `worker_factory`: a warm interpreter that forks workers
- `worker`: the process of a session: it confines itself, and forks itself
- `interpreter`: runs programs in one namespace
- `guard`: without namespaces, what ends and removes whatever a server and its sessions leave behind
"""
