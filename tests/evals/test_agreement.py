import math

import pytest

from openwebrl_jax.evals import agreement


def judgements(tn, fp, fn, tp, **fields):
    cells = [(False, False, tn), (False, True, fp), (True, False, fn), (True, True, tp)]
    return [
        agreement.Judgement(
            trajectory=f"{label}{said}{n}",
            **{"site": "a", "cause": "done"} | fields,
            label=label,
            verdict=said,
        )
        for label, said, count in cells
        for n in range(count)
    ]


def test_the_rates_of_a_known_table():
    told = agreement.rates(judgements(40, 10, 20, 30))
    assert told["accuracy"]["value"] == 0.7
    assert told["precision"]["value"] == 0.75
    assert told["recall"]["value"] == 0.6
    assert told["f1"]["value"] == pytest.approx(2 / 3)
    assert told["kappa"]["value"] == pytest.approx(0.4)
    assert told["false_positive_rate"]["value"] == 0.2
    assert told["n"] == {"success": 50, "failure": 50}
    for name in (*agreement.SHARES, *agreement.MEASURES):
        assert told[name]["low"] < told[name]["value"] < told[name]["high"]


def test_none_of_few_is_not_told_as_certain():
    told = agreement.rates(judgements(20, 0, 0, 20))["false_positive_rate"]
    assert (told["value"], told["low"]) == (0.0, 0.0)
    assert told["high"] == pytest.approx(0.161, abs=1e-3)  # Wilson, 0 of 20


@pytest.mark.parametrize(
    ("table", "kappa"),
    [((50, 0, 0, 50), 1.0), ((40, 10, 10, 40), 0.6), ((0, 0, 50, 50), 0.0)]
    + [((25, 25, 25, 25), 0.0), ((0, 50, 50, 0), -1.0), ((0, 0, 0, 9), 0.0)],
)
def test_kappa(table, kappa):
    assert agreement.kappa(*table) == pytest.approx(kappa)


def test_a_void_verdict_is_no_success_and_is_counted():
    void = agreement.Judgement(
        trajectory="v", site="a", cause="done", label=True, verdict=None
    )
    told = agreement.rates([*judgements(1, 0, 0, 1), void])
    assert (told["void"], told["confusion"]["false_negative"]) == (1, 1)
    assert told["accuracy"]["value"] == pytest.approx(2 / 3)


def test_nothing_judged_has_no_rates():
    """R39."""
    told = agreement.rates([])
    assert math.isnan(told["accuracy"]["value"]) and told["n"]["success"] == 0


def test_tables_by_site_and_cause():
    told = agreement.report(
        [*judgements(2, 0, 0, 2), *judgements(0, 3, 0, 0, site="b", cause="page_done")]
    )
    assert told["by_site"]["a"]["kappa"] == 1.0
    assert told["by_site"]["b"]["false_positive"] == 3
    assert told["by_cause"]["page_done"]["false_positive"] == 3


def test_baselines_know_the_majority_and_the_task_alone():
    asked = [
        agreement.Judgement(
            trajectory=site, site=site, cause="done", label=True, verdict=True
        )
        for site in ("easy", "hard", "new")
    ]
    learnt = [("easy", True)] * 3 + [("hard", False)] * 2
    told = agreement.baselines(learnt, asked)
    assert [it.verdict for it in told["majority"]] == [True, True, True]
    assert [it.verdict for it in told["task_name"]] == [True, False, True]


def test_calibration_by_bins():
    sure = [
        agreement.Judgement(
            trajectory=str(n),
            site="a",
            cause="done",
            label=n < 3,
            verdict=True,
            probability=0.9 if n < 4 else 1.0,
        )
        for n in range(4)
    ]
    (bin_,) = agreement.calibration([*sure, *judgements(1, 0, 0, 0)])
    assert bin_ == {"probability": pytest.approx(0.9), "share": 0.75, "n": 4}
