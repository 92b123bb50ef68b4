"""JSON over HTTP: for clients of servers that may be hostile, and for servers of such clients.

- `client`: requests over reused connections, with a deadline and bounded answers
- `server`: what our servers share, with `server_limits` and `connection_with_timeouts`
- `hosts`: which requests our servers answer
- `json_values`: JSON that is read within limits
- `failures`: how a request can fail
"""
