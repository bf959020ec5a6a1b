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
    assert set(told["trained"]["accuracy"]) == {"value", "low", "high"}
    assert told["majority"]["accuracy"]["value"] == 0.5
    assert told["unseen"]["task_name"]["recall"]["value"] == 1.0
    assert told["injections"]["injected"]["value"] == 0.0
    assert told["injections"]["plain"]["value"] is None
    assert (tmp_path / "judge.png").stat().st_size > 10_000
