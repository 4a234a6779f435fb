"""The numbers of a report against numbers counted by hand."""

from pathlib import Path

import numpy as np
import pytest

from repair.core.calls import CallOutcome
from repair.core.identity import derive_seed
from repair.core.records import Criterion, ErrorType, Grid, LinkKind
from repair.numerics.statistics import bootstrap_difference
from repair.pipeline.evaluating import QueryRank
from repair.pipeline.look import run_status, status_lines
from repair.reports.facts import report_facts
from tests.reports.runs import (
    EDIT_KEY,
    Handmade,
    attempt,
    failure,
    negative,
    rank,
    repaired,
    scored,
    told,
    verdict,
)

I2T, T2I = "image_to_text", "text_to_image"


def captions(*places: int) -> list[QueryRank]:
    """Ranks of the eight test captions, two an image."""
    return [rank(f"test{i // 2}.jpg#{i % 2}", place) for i, place in enumerate(places)]


def images(*places: int) -> list[QueryRank]:
    return [rank(f"test{i}.jpg", place) for i, place in enumerate(places)]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict:
    made = Handmade(tmp_path_factory.mktemp("run"))
    failures = [
        failure("i2t-1", "train0.jpg", "train1.jpg#0", "train0.jpg#0"),
        failure("i2t-2", "train0.jpg", "train2.jpg#0", "train0.jpg#0"),
        failure("i2t-3", "train1.jpg", "train2.jpg#0", "train1.jpg#1"),
        failure("i2t-4", "train2.jpg", "train0.jpg#1", "train2.jpg#1"),
        failure("i2t-5", "train2.jpg", "train1.jpg#1", "train2.jpg#1"),
        failure("t2i-1", "train0.jpg#0", "train1.jpg", "train0.jpg"),
    ]
    made.stage("mine", failures)
    made.stage(
        "verify",
        [
            verdict("i2t-1"),
            verdict("i2t-2"),
            verdict("i2t-3", Criterion.BENIGN_MISMATCH),
            verdict("i2t-4", Criterion.ANNOTATION_NOISE),
            verdict("i2t-5", error="no reply"),
            verdict("t2i-1"),
        ],
    )
    made.stage("instruct", [told("i2t-1", ErrorType.OBJECT, ErrorType.COUNT), told("i2t-2", ErrorType.OBJECT)])
    made.stage("edit")
    made.select(
        [scored("i2t-1", 0), scored("i2t-1", 1, "no_op"), scored("i2t-2", 0, "no_op"), scored("i2t-2", 1, "low_gain")],
        [repaired(failures[0], closeness=0.75), repaired(failures[1], key=None)],
    )
    made.stage(
        "link",
        [
            negative("train0.jpg", "train1.jpg#0"),
            negative("train0.jpg", "train2.jpg#0", "i2t-2"),
            negative("train0.jpg", "train2.jpg#0", "i2t-9"),  # the same target again
            negative("train1.jpg#0", "train0.jpg"),
            negative("train0.jpg", EDIT_KEY, kind=LinkKind.POSITIVE),
        ],
    )
    grid = Grid(
        step=0,
        index=0,
        images=("train0.jpg", "train1.jpg", "train2.jpg"),
        texts=(EDIT_KEY, "train1.jpg#0", "train2.jpg#0"),
        n_synthetic=1,
    )
    made.stage("grids", [grid])
    made.train(
        [
            {"step": step, "loss": 3.0 - step, "global_loss": 1.0, "local_loss": None, "logit_scale": 10.0,
             "n_pairs": 8, "score": score, "step_s": 0.25}
            for step, score in ((1, 0.5), (2, 0.75), (3, 0.75))
        ]
    )  # fmt: skip
    made.evaluate(None, [*images(1, 2, 4, 1), *captions(1, 1, 2, 2, 1, 4, 4, 1)])
    made.evaluate(0, [*images(1, 1, 2, 2), *captions(1, 1, 1, 1, 1, 4, 2, 2)])
    made.calls(
        attempt("i2t-1", "verify", key="k1", tokens=(100, 10), price=0.5),
        attempt("i2t-2", "verify", key="k2", tokens=(100, 10), outcome=CallOutcome.BAD_REPLY, price=0.25),
        attempt("i2t-2", "verify", key="k2", tokens=(200, 20)),
        attempt("i2t-1", "edit_text", key="k3"),
        attempt("t2i-1", "verify", key="k4"),
        attempt("cell-train0.jpg-x", "verify_cell", key="k5"),
        attempt("other", "verify", key="k6"),
    )
    return report_facts(made.close())


def test_scores_before_and_after(facts: dict) -> None:
    r1 = facts["results"]["directions"][I2T]["metrics"]["R@1"]
    assert r1["before"]["value"] == 0.5
    assert r1["after"]["value"] == 0.5
    assert r1["difference"]["value"] == 0.0
    mrr = facts["results"]["directions"][I2T]["metrics"]["MRR"]
    assert mrr["difference"]["value"] == pytest.approx((1 + 1 + 0.5 + 0.5) / 4 - (1 + 0.5 + 0.25 + 1) / 4)
    assert list(facts["results"]["directions"][I2T]["metrics"]) == ["R@1", "MRR"]
    assert facts["results"]["before"] == "before"
    assert facts["results"]["after"] == "after round 0"
    assert facts["results"]["split_is_val"] is True


def test_the_difference_resamples_the_queries_own_images(facts: dict) -> None:
    before, after = [1, 1, 0, 0, 1, 0, 0, 1], [1, 1, 1, 1, 1, 0, 0, 0]
    expected = bootstrap_difference(before, after, np.repeat(range(4), 2), seed=0, n_resamples=200)
    found = facts["results"]["directions"][T2I]["metrics"]["R@1"]["difference"]
    assert found == {
        "value": expected.estimate, "low": expected.low, "high": expected.high, "p_value": expected.p_value,
    }  # fmt: skip
    assert found["value"] == 1 / 8


def test_where_the_queries_went(facts: dict) -> None:
    moves = facts["moves"]["directions"]
    assert moves[I2T] == {"fixed": 1, "newly_broken": 1, "still_failing": 1, "still_right": 1}
    assert moves[T2I] == {"fixed": 2, "newly_broken": 1, "still_failing": 2, "still_right": 3}


def test_every_evaluation_with_the_repairs_before_it(facts: dict) -> None:
    lines = facts["results"]["evaluations"]
    assert [(line["label"], line["split"], line["n_repairs"]) for line in lines] == [
        ("before", "test", 0),
        ("after round 0", "test", 1),
    ]
    assert lines[1][T2I] == {"R@1": 5 / 8, "MRR": (5 + 0.25 + 0.5 + 0.5) / 8}


def test_failures_left_after_each_stage(facts: dict) -> None:
    sides = facts["quality"][0]["directions"]
    assert sides[I2T]["funnel"] == {"mined": 5, "kept": 2, "edited": 0, "repaired": 1, "in_grids": 1}
    assert sides[T2I]["funnel"] == {"mined": 1, "kept": 1, "edited": 0, "repaired": 0, "in_grids": 0}


def test_criteria_share_what_was_dropped(facts: dict) -> None:
    verdicts = facts["quality"][0]["directions"][I2T]["verdicts"]
    assert verdicts == {
        "n": 5,
        "kept": 2,
        "failed": 1,
        "dropped": 2,
        "annotation_noise": 1,
        "benign_mismatch": 1,
        "shares": {"annotation_noise": 0.5, "benign_mismatch": 0.5},
    }
    nothing_dropped = facts["quality"][0]["directions"][T2I]["verdicts"]["shares"]
    assert nothing_dropped == {"annotation_noise": None, "benign_mismatch": None}


def test_candidates_by_reason_and_repairs_by_status(facts: dict) -> None:
    side = facts["quality"][0]["directions"][I2T]
    assert side["candidates"] == {"n": 4, "valid": 1, "no_op": 2, "low_gain": 1}
    assert side["repairs"] == {"repaired": 1, "unrepaired": 1, "negative_only": 0, "failed": 0}
    assert side["unrepaired_reasons"] == {"no valid candidate: no_op 2": 1}


def test_error_types_count_a_failure_for_each_of_its_types(facts: dict) -> None:
    types = facts["quality"][0]["directions"][I2T]["error_types"]["types"]
    assert types["object"] == {"n": 2, "share": 1.0, "repaired_rate": 0.5}
    assert types["count"] == {"n": 1, "share": 0.5, "repaired_rate": 1.0}
    assert types["relation"] == {"n": 0, "share": 0.0, "repaired_rate": None}
    closeness = facts["quality"][0]["directions"][I2T]["closeness"]
    assert closeness == {
        name: {"n": 1, "mean": 0.75, "sd": None, "median": 0.75} for name in ("object", "count")
    }  # fmt: skip


def test_calls_count_failed_attempts_and_tell_what_a_kept_pair_took(facts: dict) -> None:
    side = facts["calls"]["directions"][I2T]
    assert side["n_pairs"] == 1
    verify = side["tasks"]["verify"]
    assert (verify["n_calls"], verify["n_failed"], verify["tokens_in"], verify["tokens_out"]) == (3, 1, 400, 40)
    assert verify["outcomes"] == {"bad_reply": 1, "done": 2}
    assert verify["per_pair"]["calls"] == 3
    assert list(side["tasks"]) == ["verify", "edit_text", "verify_cell"]
    assert side["total"]["n_calls"] == 5
    assert facts["calls"]["n_foreign"] == 1


def test_money_that_is_not_known_is_never_zero(facts: dict) -> None:
    side = facts["calls"]["directions"][I2T]
    assert side["tasks"]["verify"]["price_usd"] == 0.75
    assert side["tasks"]["verify"]["n_unpriced"] == 1
    assert side["tasks"]["verify"]["per_pair"]["price_usd"] is None
    assert side["tasks"]["edit_text"]["price_usd"] is None
    assert facts["calls"]["directions"][T2I]["total"]["per_pair"] is None  # no kept pair


def test_links_count_distinct_targets(facts: dict) -> None:
    found = {(d["anchor"], d["kind"]): d for d in facts["links"]["distributions"]}
    assert found["image", "negative"]["histogram"] == [[2, 1]]
    assert found["text", "negative"]["histogram"] == [[1, 1]]
    assert found["image", "positive"]["n_links"] == 1
    assert found["text", "positive"] == {
        "anchor": "text", "kind": "positive", "n_anchors": 0, "n_links": 0, "mean": None, "max": 0, "histogram": [],
    }  # fmt: skip


def test_training_and_grids(facts: dict) -> None:
    assert facts["grids"][0]["by_edits"] == {"1": 1}
    training = facts["training"][0]
    assert training["best"] == [2, 0.75]  # the first of equals
    assert training["first"] == {"loss": 2.0, "global_loss": 1.0, "logit_scale": 10.0}
    assert training["last"]["loss"] == 0.0
    assert (training["n_done"], training["n_samples"], training["seconds"]) == (3, 24, 0.8)


def test_a_shared_ledger_counts_only_what_this_run_asked(tmp_path: Path) -> None:
    made = Handmade(tmp_path, f"run.calls={tmp_path}/shared")
    made.stage("mine", [failure("i2t-1", "train0.jpg", "train1.jpg#0", "train0.jpg#0")])
    (tmp_path / "shared").mkdir()
    made.path = tmp_path / "shared"
    own = derive_seed(0, "verify", "i2t-1")
    made.calls(
        attempt("i2t-1", "verify", key="k1", seed=own),
        attempt("i2t-2", "verify", key="k2", seed=derive_seed(0, "verify", "i2t-2")),  # another failure
        attempt("i2t-1", "verify", key="k3", seed=own + 1),  # another question about the same
    )
    made.close()
    calls = report_facts(made.config.run_path())["calls"]
    assert calls["shared"] is True
    assert calls["directions"][I2T]["total"]["n_calls"] == 1
    assert calls["n_foreign"] == 2


def test_what_the_command_says_of_kept_failures_and_repaired_pairs(tmp_path: Path) -> None:
    made = Handmade(tmp_path)
    mined = [failure(f"i2t-{i}", "train0.jpg", f"train{i}.jpg#0", "train0.jpg#0") for i in (1, 2)]
    made.stage("mine", [*mined, failure("t2i-1", "train0.jpg#0", "train1.jpg", "train0.jpg")])
    made.stage("verify", [verdict("i2t-1"), verdict("i2t-2", Criterion.BENIGN_MISMATCH), verdict("t2i-1")])
    made.select([scored("i2t-1", 0)], [repaired(mined[0])])
    made.calls(
        attempt("i2t-1", "verify", key="k1", tokens=(100, 10), price=0.5),
        attempt("i2t-2", "verify", key="k2", tokens=(200, 20), price=0.25),
        attempt("t2i-1", "plan", key="k3", tokens=(50, 5)),
        attempt("t2i-1", "edit_image", key="k4"),
        attempt("t2i-1", "edit_image", key="k5", outcome=CallOutcome.REFUSED),
        attempt("t2i-of-another-run", "plan", key="k6"),
    )
    lines = status_lines(run_status(made.close()))
    assert [line for line in lines if line.startswith("calls, ")] == [
        "calls, plan staged, image_to_text: for each of 1 kept failures 1.00 LLM, 110 tokens, 0.5000 USD; for each of "
        "1 repaired pairs, those about dropped failures included, 2.00 LLM, 330 tokens, 0.7500 USD",
        "calls, plan staged, text_to_image: for each of 1 kept failures 1.00 LLM, 2.00 image calls, 79 tokens, "
        "price unknown",
    ]


def test_without_the_data_differences_have_no_interval(tmp_path: Path) -> None:
    made = Handmade(tmp_path)
    made.evaluate(None, [*images(1, 2, 4, 1), *captions(1, 1, 2, 2, 1, 4, 4, 1)])
    made.evaluate(0, [*images(1, 1, 2, 2), *captions(1, 1, 1, 1, 1, 4, 2, 2)])
    (tmp_path / "photos" / "captions.jsonl").unlink()
    facts = report_facts(made.close())
    assert "captions.jsonl" in facts["run"]["data_error"]
    difference = facts["results"]["directions"][T2I]["metrics"]["R@1"]["difference"]
    assert difference == {"value": 1 / 8, "low": None, "high": None, "p_value": None}
    # image_to_text needs no data: its queries are the images themselves
    assert facts["results"]["directions"][I2T]["metrics"]["R@1"]["difference"]["low"] is not None


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    facts = report_facts(Handmade(tmp_path).close())
    assert facts["results"] is None
    assert facts["moves"] is None
    assert facts["links"] is None
    assert facts["quality"] == facts["grids"] == facts["training"] == []
    assert len(facts["run"]["missing"]) == 11
    assert facts["run"]["next_command"] == f"repair run {tmp_path}/handmade/config.toml"


def test_settings_say_which_are_the_default(tmp_path: Path) -> None:
    config = {s["name"]: s for s in report_facts(Handmade(tmp_path, "mining.top_k=5").close())["run"]["config"]}
    assert (config["mining.top_k"]["value"], config["mining.top_k"]["default"]) == (5, False)
    assert config["mining.directions"]["default"]
    assert config["evaluation.recall_at"]["default"]
    assert config["mining.directions"]["value"] == ["image_to_text", "text_to_image"]
