"""Answers of any backend, recorded in a JSONL file and given again: for tests, and for sharing runs without a model.

With a backend behind it, a replay passes on what the file does not hold and writes it down; without one it knows the
file only. Requests are found by the very key the ledger uses: a replay has the fingerprint of the backend it recorded,
and a run over it shares every answer with the run it was made from.

One line an answer: {"task", "backend", "key", "value" or "error", "usage", "raw"}; images in base64. Policy refusals
and unusable answers are recorded too; a server that gave no answer is not.
"""

import base64
import fcntl
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from repair.core.errors import BackendError, BadReply, ConfigError, Refused, StoreError
from repair.core.identity import canonical_json, request_key
from repair.core.ports import (
    Case,
    ImageEditor,
    Instructor,
    Plan,
    Planner,
    Reply,
    TextEditor,
    Verifier,
)
from repair.core.records import Instruction, Usage, Verdict

Value = TypeVar("Value")

FORMAT = {"format": "repair-replay", "version": 1}

_FAILURES: dict[str, type[BackendError]] = {"Refused": Refused, "BadReply": BadReply}


class Recording:
    """The file. Appending is safe beside other processes; a line cut short by a crash is left out and answered anew."""

    def __init__(self, path: str) -> None:
        """Raises StoreError if there is a file and it is no recording."""
        self.path = Path(path)
        self._rows: dict[str, Mapping[str, Any]] = {}
        if self.path.exists():
            self._read()

    def get(self, key: str) -> Mapping[str, Any] | None:
        return self._rows.get(key)

    def backends(self, task: str) -> list[str]:
        """Fingerprints of the backends that answered `task`, in order of appearance."""
        return list(dict.fromkeys(str(row["backend"]) for row in self._rows.values() if row["task"] == task))

    def add(self, row: Mapping[str, Any]) -> None:
        """Raises StoreError if the file cannot be written."""
        self._rows[row["key"]] = row
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                end = file.seek(0, os.SEEK_END)
                lines = "" if end else canonical_json(FORMAT) + "\n"
                if end:
                    file.seek(end - 1)
                    lines = "" if file.read(1) == b"\n" else "\n"  # after a line cut short
                file.write((lines + canonical_json(row) + "\n").encode())
        except OSError as error:
            raise StoreError(f"{self.path}: answers cannot be recorded: {error.strerror}") from error

    def _read(self) -> None:
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise StoreError(f"{self.path}: the recording cannot be read: {error.strerror}") from error
        if lines and _object(lines[0]) != FORMAT:
            raise StoreError(f"{self.path} is no recording of answers: its first line must be {canonical_json(FORMAT)}")
        for line in lines[1:]:
            row = _object(line)
            if {"task", "backend", "key", "usage", "raw"} <= set(row):
                self._rows.setdefault(str(row["key"]), row)


class _Codec(NamedTuple):
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def _record_codec(kind: type[Any]) -> _Codec:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return _Codec(lambda value: adapter.dump_python(value, mode="json"), adapter.validate_python)


_VERDICT = _record_codec(Verdict)
_INSTRUCTION = _record_codec(Instruction)
_PLAN = _record_codec(Plan)
_TEXT = _record_codec(str)
_IMAGE = _Codec(
    lambda data: base64.b64encode(data).decode(), lambda text: base64.b64decode(text.encode("ascii"), validate=True)
)


class _Replay:
    """`inner` None: only what the file holds. `backend` chooses among several recorded ones."""

    task = ""

    def __init__(self, recording: Recording, inner: Any | None, *, backend: str = "") -> None:
        """Raises ConfigError if the file alone does not say whose answers are meant."""
        self._recording = recording
        self._inner = inner
        if inner is not None:
            self.fingerprint: str = inner.fingerprint
            for name in ("place", "facts"):
                if hasattr(inner, name):
                    setattr(self, name, getattr(inner, name))
        else:
            self.fingerprint = self._recorded(backend)

    def _recorded(self, backend: str) -> str:
        found = self._recording.backends(self.task)
        chosen = [name for name in found if name.startswith(backend)]
        if len(chosen) == 1:
            return chosen[0]
        where = f'{self._recording.path} holds answers to "{self.task}"'
        if not found:
            raise ConfigError(f'{where} of no backend: record some with replay(path=…, of="…")')
        raise ConfigError(f'{where} of {len(found)} backends: set the option "backend" to one of {", ".join(found)}')

    async def _answer(
        self, payload: Mapping[str, Any], codec: _Codec, ask: Callable[[Any], Awaitable[Reply[Value]]], *, seed: int
    ) -> Reply[Value]:
        key = request_key(task=self.task, backend=self.fingerprint, seed=seed, payload=payload)
        row = self._recording.get(key)
        if row is not None:
            return self._replayed(row, codec)
        if self._inner is None:
            raise Refused(f"{self._recording.path} holds no answer to this request", usage=Usage(price_usd=0.0))
        known = {"task": self.task, "backend": self.fingerprint, "key": key}
        try:
            reply = await ask(self._inner)
        except (Refused, BadReply) as error:
            failure = {"kind": type(error).__name__, "message": str(error)}
            usage = None if error.usage is None else asdict(error.usage)
            self._recording.add({**known, "error": failure, "usage": usage, "raw": error.raw})
            raise
        self._recording.add(
            {**known, "value": codec.encode(reply.value), "usage": asdict(reply.usage), "raw": reply.raw}
        )
        return reply

    def _replayed(self, row: Mapping[str, Any], codec: _Codec) -> Reply[Any]:
        try:
            usage = None if row["usage"] is None else Usage(**row["usage"])
            raw = str(row["raw"])
            if "value" in row:
                return Reply(codec.decode(row["value"]), usage or Usage(), raw)
            kind, message = _FAILURES[row["error"]["kind"]], str(row["error"]["message"])
        except (TypeError, ValueError, LookupError, ValidationError) as error:
            raise StoreError(
                f"{self._recording.path}: the answer {row['key']} is not in this format: {error!r}"
            ) from None
        raise kind(message, usage=usage, raw=raw)


class ReplayVerifier(_Replay):
    task = "verify"

    async def verify(self, case: Case, *, seed: int) -> Reply[Verdict]:
        async def ask(inner: Verifier) -> Reply[Verdict]:
            return _without_id(await inner.verify(case, seed=seed))

        reply = await self._answer(case.payload(), _VERDICT, ask, seed=seed)
        return reply._replace(value=replace(reply.value, failure_id=case.failure_id))


class ReplayInstructor(_Replay):
    task = "instruct"

    async def instruct(self, case: Case, *, seed: int) -> Reply[Instruction]:
        async def ask(inner: Instructor) -> Reply[Instruction]:
            return _without_id(await inner.instruct(case, seed=seed))

        reply = await self._answer(case.payload(), _INSTRUCTION, ask, seed=seed)
        return reply._replace(value=replace(reply.value, failure_id=case.failure_id))


class ReplayTextEditor(_Replay):
    task = "edit_text"

    async def edit_text(self, case: Case, instruction: Instruction, *, seed: int) -> Reply[str]:
        async def ask(inner: TextEditor) -> Reply[str]:
            return await inner.edit_text(case, instruction, seed=seed)

        return await self._answer(_edit_payload(case, instruction), _TEXT, ask, seed=seed)


class ReplayImageEditor(_Replay):
    task = "edit_image"

    async def edit_image(self, case: Case, instruction: Instruction, *, seed: int) -> Reply[bytes]:
        async def ask(inner: ImageEditor) -> Reply[bytes]:
            return await inner.edit_image(case, instruction, seed=seed)

        return await self._answer(_edit_payload(case, instruction), _IMAGE, ask, seed=seed)


class ReplayPlanner(_Replay):
    task = "plan"

    async def plan(self, case: Case, *, n_edits: int, seed: int) -> Reply[Plan]:
        async def ask(inner: Planner) -> Reply[Plan]:
            reply = await inner.plan(case, n_edits=n_edits, seed=seed)
            return reply._replace(value=_named(reply.value, ""))

        reply = await self._answer({"case": case.payload(), "n_edits": n_edits}, _PLAN, ask, seed=seed)
        return reply._replace(value=_named(reply.value, case.failure_id))


def _edit_payload(case: Case, instruction: Instruction) -> dict[str, Any]:
    told = asdict(instruction)
    return {"case": case.payload(), **{name: told[name] for name in ("instruction", "residual", "scaffold")}} | {
        "error_types": [str(kind) for kind in instruction.error_types]
    }


def _without_id(reply: Reply[Any]) -> Reply[Any]:
    """Equal cases share an answer, whatever failure they come from."""
    return reply._replace(value=replace(reply.value, failure_id=""))


def _named(plan: Plan, failure_id: str) -> Plan:
    told = plan.instruction
    return replace(
        plan,
        verdict=replace(plan.verdict, failure_id=failure_id),
        instruction=None if told is None else replace(told, failure_id=failure_id),
    )


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
