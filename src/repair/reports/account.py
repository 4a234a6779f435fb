"""The run's own account: stages and what they did, settings and which are the default, versions, items set aside."""

import time
from collections.abc import Mapping
from typing import Any

from repair.config import settings
from repair.reports.view import RunView

_N_SET_ASIDE = 100


def account_facts(view: RunView) -> dict[str, Any]:
    """Everything about the run that is not a result."""
    manifest = view.folder.manifest
    aside = list(view.source.set_aside) if view.source is not None else []
    return {
        "name": manifest["name"],
        "created": _utc(manifest["created"]),
        "fingerprint": manifest["fingerprint"],
        "earlier_fingerprints": list(manifest["earlier"]),
        "versions": dict(manifest["versions"]),
        "rounds": view.config.pipeline.rounds,
        "stages": _stages(view),
        "missing": [{"round": s.round, "stage": s.stage} for s in view.steps if s.state is None],
        "next_command": f"repair run {view.folder.config_path}",
        "config": _settings(view),
        "data_error": view.source_error or None,
        "n_set_aside": len(aside),
        "set_aside": [{"item": item.item, "reason": item.reason} for item in aside[:_N_SET_ASIDE]],
    }


def _stages(view: RunView) -> list[dict[str, Any]]:
    """Finished stages in order. `seconds` is the time since the stage before finished: pauses and other rounds' work
    between the two are in it."""
    previous = float(view.folder.manifest["created"])
    found = []
    for step in view.steps:
        if step.state is None:
            continue
        finished = view.folder.finished_s(step.state)
        found.append(
            {
                "round": step.round,
                "stage": step.stage,
                "finished": _utc(finished),
                "seconds": float(f"{finished - previous:.1f}") if finished >= previous else None,
                "summary": step.state.summary,
            }
        )
        previous = max(previous, finished)
    return found


def told(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A stage's summary as (name, value) pairs; lists are left out, nested names follow their parent's."""
    lines = []
    for name, value in summary.items():
        if isinstance(value, Mapping):
            inner = ", ".join(f"{k} {_number(v)}" for k, v in value.items() if not isinstance(v, (Mapping, list)))
            if inner:
                lines.append((name, inner))
        elif not isinstance(value, list):
            lines.append((name, _number(value)))
    return lines


def _settings(view: RunView) -> list[dict[str, Any]]:
    """Every setting in the order of the config, with whether it is the default."""
    defaults = {name: default for name, default, _, _ in settings()}
    described = {name: description for name, _, _, description in settings()}
    return [
        {
            "name": name,
            "value": value,
            "default": _plain(defaults[name]) == value,
            "description": described[name],
        }
        for name, value in view.config.flat().items()
    ]


def _plain(value: Any) -> Any:
    """A default as JSON has it."""
    return [str(v) if isinstance(v, str) else v for v in value] if isinstance(value, tuple) else value


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
