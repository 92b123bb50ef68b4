"""JSON over HTTP, for clients of servers that may be slow, broken or hostile.

- `core`: `Fault`, `HttpFailure` and `Limits` (seconds, tries, bytes); `parse` and `serialize` for strict JSON; `Node`,
  which reads values and names the path of a wrong one
- `client`: `Connections`, asynchronous requests; `JsonClient`, the same for threads; `retried`, which tries again;
  `BoundedBody`, which unpacks with a limit

Every failure of a request is an `HttpFailure` with its `Fault`; a value of another shape is a `ShapeError`. Answers are
bounded as sent and as unpacked. No cookies, redirects or proxies. Pages of the open web have a client of their own,
`search.fetch`, which connects only to addresses that were checked.
"""
