"""What another method than RePair made: its samples by builder, kept and rejected, what each kept one cost, examples.

Of a method without builders (Vanilla) nothing; of one that trains on unedited failures, these.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from repair.core.identity import derive_rng
from repair.core.synthesis import Sample, SampleKind
from repair.reports.choosing import in_turn
from repair.reports.shown import Shower, Shown
from repair.reports.view import EDIT, RunView

_N_KEPT, _N_REJECTED = 6, 4  # shown of each builder
_MOST_OUTLINED = 0.5  # of a picture's pixels: where more have changed, outlines say nothing


def is_kept(sample: Sample) -> bool:
    """Whether it was made and can be trained on: near originals are not made."""
    return sample.rejected is None and sample.kind is not SampleKind.NEIGHBOUR


# ---------------------------------------------------------------------------------------------- numbers


def samples_facts(view: RunView, calls: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was made, by builder; None for RePair.

    {"method", "types", "notes", "on_failures", "tools", "done", "n_kept", "n_neighbours", "builders", "truth"}. A
    builder: {"builder", "n_anchors" (None where it asks about none), "n_candidates", "n_kept", "kinds": kept ones by
    kind, "rejected": {reason: n} most frequent first, "per_kept": calls, tokens and images, None without a kept one}.
    "truth": by kind, what the data source knew of accepted samples; None where it is unknown. `calls`: the facts of
    `costs`.
    """
    method = view.method
    if method.is_repair:
        return None
    samples = view.table(0, Sample)
    made = [sample for sample in samples if sample.kind is not SampleKind.NEIGHBOUR]
    names = dict.fromkeys([*(builder.name for builder in method.builders), *(sample.builder for sample in made)])
    return {
        "method": method.title,
        "types": list(method.types),
        "notes": method.notes,
        "on_failures": method.failures,
        "tools": _tools(view),
        "done": (0, "samples") in view.states,
        "n_kept": sum(map(is_kept, made)),
        "n_neighbours": len(samples) - len(made),
        "builders": [_builder(view, name, [one for one in made if one.builder == name], calls) for name in names],
        "truth": (view.truth(0) or {}).get("samples"),
    }


def _tools(view: RunView) -> dict[str, str]:
    """The backends that the method asks, by what they are for."""
    settings, builders = view.config.method, view.method.builders
    wanted = {
        "caption writer": any(builder.written for builder in builders),
        "rules": any(builder.ruled for builder in builders),
        "image maker": any(builder.makes for builder in builders),
    }
    names = {"caption writer": settings.writer, "rules": settings.rules, "image maker": settings.maker}
    return {what: names[what] for what, asked in wanted.items() if asked}


def _builder(view: RunView, name: str, samples: Sequence[Sample], calls: Mapping[str, Any]) -> dict[str, Any]:
    state = view.states.get((0, "samples"))
    said = {} if state is None else state.summary.get(name, {})
    kept = [sample for sample in samples if is_kept(sample)]
    kinds, reasons = Counter(sample.kind for sample in kept), Counter(s.rejected for s in samples if s.rejected)
    parts = calls["builders"]
    own = [parts[name]] if name in parts else list(calls["directions"].values())
    return {
        "builder": name,
        "n_anchors": said.get("anchors"),
        "n_candidates": len(samples),
        "n_kept": len(kept),
        "kinds": {str(kind): kinds[kind] for kind in SampleKind if kinds[kind]},
        "rejected": dict(reasons.most_common()),
        "per_kept": _per_kept([part["total"] for part in own], len(kept)),
    }


def _per_kept(totals: Sequence[Mapping[str, Any]], n: int) -> dict[str, float] | None:
    if not n:
        return None
    names = {"calls": ("n_calls",), "tokens": ("tokens_in", "tokens_out"), "images": ("n_images",)}
    return {what: sum(total[key] for total in totals for key in keys) / n for what, keys in names.items()}


# ---------------------------------------------------------------------------------------------- examples


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCard:
    """A sample beside its anchor. `made` are its captions and images, with what differs from the anchor's."""

    sample: Sample
    image: Shown
    caption: Shown
    made: tuple[Shown, ...]


def sample_cards(view: RunView, shower: Shower) -> dict[str, dict[str, list[SampleCard]]]:
    """{builder: {"kept": cards, "rejected": cards}}: of the kept one of each kind and change in turn, of the rejected
    one of each reason, in the order of a draw by the run's seed. Empty for RePair."""
    if view.method.is_repair:
        return {}
    samples = [sample for sample in view.table(0, Sample) if sample.kind is not SampleKind.NEIGHBOUR]
    found = {}
    for builder in dict.fromkeys(sample.builder for sample in samples):
        own = [sample for sample in samples if sample.builder == builder]
        order = derive_rng(view.config.run.seed, "report", "samples", builder).permutation(len(own))
        drawn = [own[i] for i in order]
        kept = _by([sample for sample in drawn if is_kept(sample)], lambda s: (s.kind, _change(s)), _N_KEPT)
        rejected = _by([sample for sample in drawn if not is_kept(sample)], lambda s: s.rejected, _N_REJECTED)
        found[builder] = {"kept": [_card(shower, s) for s in kept], "rejected": [_card(shower, s) for s in rejected]}
    return found


def _change(sample: Sample) -> str:
    """What was asked for, without its particulars."""
    return sample.how.partition(":")[0].partition("-")[0]


def _by(samples: Sequence[Sample], key: Callable[[Sample], Any], n: int) -> list[Sample]:
    """The first `n`, one of each key in turn."""
    places: dict[Any, list[int]] = {}
    for place, sample in enumerate(samples):
        places.setdefault(key(sample), []).append(place)
    return [samples[place] for place in in_turn(list(places.values()), n)]


def _card(shower: Shower, sample: Sample) -> SampleCard:
    return SampleCard(
        sample=sample,
        image=shower.image(sample.image_id, "source image"),
        caption=shower.caption(sample.caption_id, "source caption"),
        made=tuple(_made(shower, sample)),
    )


def _made(shower: Shower, sample: Sample) -> list[Shown]:
    """An unedited item of another pair is shown as it is: what differs from the anchor was not changed in it."""
    source = shower.view.text(sample.caption_id)
    found = []
    if sample.image_key is not None:
        edited = sample.image_key.startswith(EDIT)
        role = "made image" if edited else "false positive"
        was = sample.image_id if edited and not sample.how.startswith("view") else None  # a view differs everywhere
        found.append(_outlined(shower.image(sample.image_key, role, was=was)))
    if sample.text is not None and sample.foil is None:
        edited = str(sample.text_key).startswith(EDIT)
        role = "written caption" if edited else "false positive"
        found.append(shower.caption(str(sample.text_key), role, text=sample.text, was=source if edited else None))
    if sample.text is not None and sample.foil is not None:
        found.append(shower.caption(str(sample.text_key), "part of the caption", text=sample.text))
        found.append(shower.caption(str(sample.foil_key), "its foil", text=sample.foil, was=sample.text))
    return found


def _outlined(shown: Shown) -> Shown:
    change = shown.change
    if change is None or change.share <= _MOST_OUTLINED:
        return shown
    return replace(shown, change=replace(change, boxes=()))
