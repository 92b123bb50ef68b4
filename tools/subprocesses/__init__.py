"""Work outside of the calling thread: child processes with limits, pools of them, and threads with a deadline.

- `process`: child processes that answer requests, one or a pool of them
- `messages`: JSON values between processes, as frames or packets
- `deadlines`: work on a thread that is waited for only so long
"""
