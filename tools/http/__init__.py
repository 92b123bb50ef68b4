"""JSON over HTTP: for clients of servers that may be slow, broken or hostile, and for servers of such clients.

- `client`: requests over reused connections, with a deadline and bounded answers
- `server`: what servers of ours have in common
- `hosts`: whom a server of ours answers
- `json_values`: JSON that is read within limits
- `failures`: how a request can fail
"""
