"""Work outside of the calling thread: child processes with limits, threads with deadlines.

- `process`: child processes that answer requests, one or a pool of them
- `messages`: JSON values between processes, as frames or packets
- `deadlines`: work on a thread, for which the caller waits only so long
"""
