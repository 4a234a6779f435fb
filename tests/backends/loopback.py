"""A real HTTP server on the loopback that speaks chat completions, image edits and batches, with faults on demand."""

import base64
import io
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image


@dataclass
class Answer:
    """One HTTP answer. `cut`: announce the whole body, send half of it and hang up. `stall`: hold until released."""

    status: int = 200
    body: Any = None  # bytes as they are, anything else as JSON
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    cut: bool = False
    stall: bool = False


@dataclass
class Seen:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any  # JSON, or for a form: its fields, files as bytes


def completion(
    content: Any, *, finish: str = "stop", refusal: str | None = None, tokens: tuple[int, int] = (100, 10)
) -> dict[str, Any]:
    """A chat completion with `content` (JSON text of it, if it is no text)."""
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    message = {"role": "assistant", "content": text, "refusal": refusal}
    return {
        "id": "c1",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": finish, "message": message, "logprobs": None}],
        "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)},
    }


class Loopback:
    """Answers with `script` first, one entry a request, then with `answer(seen)`. Keeps every request in `seen`."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.answer: Callable[[Seen], Answer] = lambda seen: Answer(404, {"error": {"message": "nothing here"}})
        self.seen: list[Seen] = []
        self.released = threading.Event()
        self.url = ""
        self._lock = threading.Lock()

    def respond(self, seen: Seen) -> Answer:
        with self._lock:
            self.seen.append(seen)
            if self.script:
                return self.script.pop(0)
        return self.answer(seen)

    def says(self, *contents: Any, **options: Any) -> None:
        """Script these chat answers."""
        self.script += [Answer(body=completion(content, **options)) for content in contents]

    def fails(self, status: int, message: str = "no", *, code: str = "", **headers: str) -> None:
        """Script one failure."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.script.append(Answer(status, {"error": {"message": message, "code": code, "type": ""}}, named))

    @property
    def last(self) -> Seen:
        return self.seen[-1]


@contextmanager
def loopback() -> Iterator[Loopback]:
    """A running server; `url` ends with /v1."""
    server = Loopback()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = server.respond(Seen(self.command, self.path, headers, _body(data, headers)))
            if answer.stall:
                server.released.wait(30)
                self.close_connection = True
                return
            body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            self.send_header("content-type", answer.content_type)
            self.send_header("content-length", str(len(body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if answer.cut else body)
            self.close_connection = self.close_connection or answer.cut

        do_GET = do_POST = _serve

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    http = Server(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        http.shutdown()
        http.server_close()
        thread.join()


def _body(data: bytes, headers: dict[str, str]) -> Any:
    kind = headers.get("content-type", "")
    if kind.startswith("multipart/form-data"):
        return _form(data, kind.split("boundary=")[1].strip('"').encode())
    return json.loads(data) if data else None


def _form(data: bytes, boundary: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for part in data.split(b"--" + boundary)[1:-1]:
        head, _, content = part.strip(b"\r\n").partition(b"\r\n\r\n")
        named = re.search(rb'name="([^"]*)"', head)
        assert named is not None
        fields[named.group(1).decode()] = content if b"filename=" in head else content.decode()
    return fields


# ------------------------------------------------------------------------------------------- images


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def image_answer(data: bytes) -> Answer:
    return Answer(body={"created": 1, "data": [{"b64_json": base64.b64encode(data).decode()}]})


# ------------------------------------------------------------------------------------------ batches


class Batches:
    """Files and batches: the part of a provider that answers a day later, here after `n_polls` looks.

    `one(body)` answers one request as (status, body). `order` may shuffle, drop or spoil the output's lines.
    """

    def __init__(
        self,
        one: Callable[[Any], tuple[int, Any]],
        *,
        n_polls: int = 2,
        order: Callable[[list[str]], list[str]] = lambda lines: lines,
        ends: str = "completed",
    ) -> None:
        self.one = one
        self.n_polls = n_polls
        self.order = order
        self.ends = ends
        self.files: dict[str, str] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.looks: dict[str, int] = {}

    def __call__(self, seen: Seen) -> Answer:
        path = seen.path.split("?")[0].removeprefix("/v1")
        if seen.method == "POST" and path == "/files":
            name = f"file-{len(self.files)}"
            self.files[name] = seen.body["file"].decode()
            return Answer(body={"id": name, "object": "file", "purpose": "batch"})
        if seen.method == "POST" and path == "/batches":
            return Answer(body=self._create(seen.body))
        if path == "/batches":
            return Answer(body={"object": "list", "data": list(self.batches.values()), "has_more": False})
        if path.startswith("/batches/"):
            return Answer(body=self._look(path.removeprefix("/batches/")))
        if path.endswith("/content"):
            return Answer(body=self.files[path.split("/")[2]].encode(), content_type="application/octet-stream")
        return Answer(404, {"error": {"message": path}})

    def _create(self, wanted: dict[str, Any]) -> dict[str, Any]:
        name = f"batch-{len(self.batches)}"
        self.looks[name] = 0
        self.batches[name] = {
            "id": name,
            "object": "batch",
            "status": "in_progress",
            "metadata": wanted["metadata"],
            "input_file_id": wanted["input_file_id"],
            "endpoint": wanted["endpoint"],
        }
        return self.batches[name]

    def _look(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        self.looks[name] += 1
        if self.looks[name] >= self.n_polls and batch["status"] == "in_progress":
            lines: list[str] = []
            for line in self.files[batch["input_file_id"]].splitlines():
                request = json.loads(line)
                status, body = self.one(request["body"])
                response = {"status_code": status, "request_id": "r", "body": body}
                lines.append(json.dumps({"id": "l", "custom_id": request["custom_id"], "response": response}))
            output = f"file-{name}"
            self.files[output] = "\n".join(self.order(lines)) + "\n"
            batch.update(status=self.ends, output_file_id=output)
            if self.ends == "failed":
                fault = {"code": "invalid_json_line", "message": "line 1 is no JSON"}
                batch.update(output_file_id=None, errors={"object": "list", "data": [fault]})
        return batch
