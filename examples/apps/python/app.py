"""A small ASGI application: a page, an echo of uploads, a slow stream, and a chat over a WebSocket.

Runs under any ASGI server, for one: uvicorn --uds "$SOCKET" app:app
"""

import asyncio
import hashlib
import json

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Echo over a WebSocket</title>
<style>body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }
li { list-style: none }</style>
<h1>Echo over a WebSocket</h1>
<p>State: <output id="state">connecting</output></p>
<form><input id="text" value="hello"> <button>Send</button></form>
<ul id="answers"></ul>
<script>
const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${location.pathname}socket`);
const state = document.getElementById("state");
const answers = document.getElementById("answers");
socket.onopen = () => { state.value = "open"; socket.send("first"); };
socket.onclose = (event) => { state.value = `closed (${event.code})`; };
socket.onmessage = (event) => {
  const item = document.createElement("li");
  item.textContent = event.data;
  answers.append(item);
};
document.querySelector("form").onsubmit = (event) => {
  event.preventDefault();
  socket.send(document.getElementById("text").value);
};
</script>
"""


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "websocket":
        await echo(receive, send)
    else:
        await answer(scope, receive, send)


async def lifespan(receive, send):
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def echo(receive, send):
    """Sends back what comes, text as text and bytes as bytes."""
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") is not None:
            await send({"type": "websocket.send", "text": "you said: " + message["text"]})
        else:
            await send({"type": "websocket.send", "bytes": message["bytes"]})


async def answer(scope, receive, send):
    path = scope["path"]
    if path.endswith("/request"):
        fields = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]]
        seen = {
            "method": scope["method"],
            "path": path,
            "query": scope["query_string"].decode("latin-1"),
            "client": scope.get("client"),
            "fields": fields,
        }
        return await reply(send, 200, b"application/json", json.dumps(seen).encode())
    if path.endswith("/digest"):
        digest, length = hashlib.sha256(), 0
        more = True
        while more:
            message = await receive()
            digest.update(message.get("body", b""))
            length += len(message.get("body", b""))
            more = message.get("more_body", False)
        body = json.dumps({"length": length, "sha256": digest.hexdigest()}).encode()
        return await reply(send, 200, b"application/json", body)
    if path.endswith("/stream"):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        for number in range(5):
            await send({"type": "http.response.body", "body": b"line %d\n" % number, "more_body": True})
            await asyncio.sleep(0.05)
        return await send({"type": "http.response.body", "body": b"end\n"})
    if path.endswith("/"):
        return await reply(send, 200, b"text/html; charset=utf-8", PAGE.encode())
    await reply(send, 404, b"text/plain", b"nothing here\n")


async def reply(send, status, media_type, body):
    fields = [(b"content-type", media_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})
