"""JSON over HTTP, for clients of servers that may be slow, broken or hostile.

- `core`: `Fault`, `HttpFailure` and `Limits` (seconds, tries, bytes); `parse` and `serialize` for strict JSON; `Node`,
  which reads values and names the path of a wrong one
- `connections`: `Connections`, asynchronous requests over reused connections; `retried`, which tries again with growing
  pauses; `BoundedBody`, which unpacks with a limit; `split_url`, which checks an address
- `client`: `JsonClient`, the same for threads: it runs the requests on an event loop of its own

An asynchronous caller bounds one attempt by `asyncio.timeout`, or several by `retried`:

    connections = Connections(secure=False)
    request = connections.request("POST", "http://127.0.0.1:8000/v1/completions", serialize({"model": "m"}))
    body = await retried(lambda: connections.send(request, limits.max_bytes), limits)
    name = Node(parse(body))["choices"].array()[0]["text"].string()

A caller with threads writes `JsonClient("http://127.0.0.1:8000", "/retrieve").post({"queries": []})["result"].array()`.

Every failure of a request is an `HttpFailure` with its `Fault`; a value of another shape is a `ShapeError`. Answers are
bounded as sent and as unpacked. No cookies, redirects or proxies. Pages of the open web have a client of their own,
`search.fetch`, which connects only to addresses that were checked.
"""
