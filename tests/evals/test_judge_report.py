import json

from openwebrl_jax.evals import judge_report


def line(n, label, verdict, site="a"):
    return {
        "trajectory": str(n),
        "site": site,
        "ending": "page_done",
        "label": label,
        "verdict": verdict,
        "probability": 0.9 if verdict else 0.1,
    }


def test_the_report_has_what_is_looked_for(tmp_path):
    right = [line(n, n % 2 == 0, n % 2 == 0) for n in range(20)]
    lost = [line(n, n % 2 == 0, None) for n in range(20)]
    sets = {"seen": right, "unseen": right[:9], "injected": right[1::2], "plain": []}
    none = {"injected": [], "plain": []}
    untrained = {"seen": lost, "unseen": lost[:9], **none}
    judge_report.write(
        tmp_path,
        judged={"trained": sets, "untrained": untrained, "text": {**sets, **none}},
        learnt=[("a", True)],
        records=[{"step": 1, "reward/judge": 0.5, "reward/checker": 0.4}],
        gains={},
    )
    told = json.loads((tmp_path / "report.json").read_text())
    assert told["trained"]["kappa"]["value"] == 1.0
    assert told["untrained"]["kappa"]["value"] == 0.0
    assert told["untrained"]["void"] == 20
    for who in ("trained", "untrained", "text", "majority", "task_name"):
        for place in (told[who], told["unseen"][who]):
            for name in ("accuracy", "precision", "recall", "f1", "kappa"):
                assert set(place[name]) == {"value", "low", "high"}
            assert set(place["n"]) == {"success", "failure"}
            assert sum(place["confusion"].values()) == sum(place["n"].values())
    assert told["trained"]["n"] == {"success": 10, "failure": 10}
    assert told["unseen"]["trained"]["n"] == {"success": 5, "failure": 4}
    assert [bin_["n"] for bin_ in told["trained"]["calibration"]] == [10, 10]
    assert told["majority"]["accuracy"]["value"] == 0.5
    assert told["unseen"]["task_name"]["recall"]["value"] == 1.0
    assert told["injections"]["injected"]["value"] == 0.0
    assert told["injections"]["injected"]["n"] == 10
    assert told["injections"]["plain"]["value"] is None
    assert (tmp_path / "judge.png").stat().st_size > 10_000
