"""Web case 43: published semantics, faults included; `-m oracle`: libwebarena."""

import asyncio
import json
import sys
import warnings

import hypothesis
import pytest
from hypothesis import strategies as st

from openwebrl_jax.core.causes import Failure
from openwebrl_jax.rewards import webarena
from tests.rewards import stories

MUST = [  # references, answer, published score
    (["0"], "$0.00", 0.0),
    (["0"], "There are 0 of them", 1.0),
    (["1"], "10", 0.0),
    (["17"], "170", 1.0),
    (["170"], "000000170", 1.0),
    (["1", "2"], "12", 1.0),
    (["0"], "0, 1", 1.0),
    (["0"], "0.", 1.0),
    (["a"], "'A'", 1.0),
    (["x |OR| y"], "y", 0.0),
    (["Milk "], "we have milk", 1.0),
    (["\u201cmilk\u201d"], "milk", 0.0),
]
EXACT = [
    ("42", " 42 ", 1.0),
    ("42", '"42"', 1.0),
    ("42", "42.", 0.0),
    ("42", "' 42 '", 1.0),  # cleaned twice, as published
    ("42", "\"'42'\"", 1.0),
    ("Milk", "mILK", 1.0),
    ("42", "\u201c42\u201d", 0.0),
    ("", "", 1.0),
]
URLS = [  # reference, final address, published score
    ("http://s/a", "http://s/a/", 1.0),
    ("http://s/viewed", "http://s/viewedasdf", 1.0),
    ("", "http://s/a", 1.0),
    ("http://s/a", "https://s/a", 1.0),
    ("http://s/a", "http://s/A", 0.0),
    ("http://s/a |OR| http://s/b", "http://s/b", 1.0),
    ("http://s/a?q=1", "http://s/a?q=1&z=2", 1.0),
    ("http://s/a?q=1", "http://s/a", 0.0),
    ("http://s/a?q=", "http://s/a", 1.0),
    ("http://s/a?q=1 |OR| http://s/b?q=2", "http://s/a?q=2", 1.0),
    ("http://s/catalogsearch", "http://s//catalogsearch", 0.0),
    ("http://s/a", "http://s/a#x", 1.0),
]


def run(rules, complete=None, **fields):
    check = {"kind": "webarena", "eval": rules}
    return asyncio.run(webarena.score(check, stories.story(**fields), complete))


def answers(kind, reference, **more):
    given = {"reference_answers": {kind: reference}, **more}
    return {"eval_types": ["string_match"], **given}


@pytest.mark.parametrize(("references", "answer", "value"), MUST)
def test_must_include(references, answer, value):
    assert run(answers("must_include", references), answer=answer) == value


@pytest.mark.parametrize(("reference", "answer", "value"), EXACT)
def test_exact_match(reference, answer, value):
    assert run(answers("exact_match", reference), answer=answer) == value


@pytest.mark.parametrize(("reference", "address", "value"), URLS)
def test_url_match(reference, address, value):
    rules = {"eval_types": ["url_match"], "reference_url": reference}
    assert run(rules, final=stories.page(1, url=address)) == value


def replies(*texts):
    left = list(texts)

    async def complete(messages, *, seed):
        return left.pop(0)

    return complete


@pytest.mark.parametrize(
    ("texts", "value"),
    [
        (["correct", "It is Correct."], 1.0),
        (["correct", "partially correct"], 0.0),
        (["incorrect", "correct"], 0.0),
    ],
)
def test_fuzzy_references_are_all_graded(texts, value):
    assert run(answers("fuzzy_match", ["a", "b"]), replies(*texts)) == value


@pytest.mark.parametrize(
    ("answer", "texts", "value"),
    [
        ("N/A", [], 1.0),
        ("n/a.", ["different"], 0.0),
        ("none", ["same"], 1.0),
        ("no", ["Different, not the same"], 0),
    ],
)
def test_a_task_that_cannot_be_done(answer, texts, value):
    rules = answers("fuzzy_match", "N/A", string_note="no such order")
    assert run(rules, replies(*texts), answer=answer) == value


def test_a_grade_that_is_none_is_void_and_no_grader_is_too():
    with pytest.raises(Failure, match="judge_unparseable"):
        run(answers("fuzzy_match", ["a"]), replies("hm", "hm", "hm"))
    with pytest.raises(Failure, match="judge_unavailable"):
        run(answers("fuzzy_match", ["a"]))


@pytest.mark.parametrize(
    ("wanted", "content", "value"),
    [
        ({"must_include": ["milk |OR| bread"]}, "<b>BREAD</b>", 1.0),
        ({"must_include": ["0"]}, "10", 1.0),
        ({"must_include": ["a & b"]}, "a &amp; b", 1.0),
        ({"exact_match": "None"}, None, 1.0),
        ({"exact_match": "x"}, " X ", 1.0),
        ({"must_include": ["milk", "tea"]}, "milk", 0.0),
    ],
)
def test_program_html(wanted, content, value):
    target = {"url": "last", "locator": "", "required_contents": wanted}
    rules = {"eval_types": ["program_html"], "program_html": [target]}
    assert run(rules, facts={"webarena:0": content}) == value


def html_check(**target):
    target = {"url": "last", "locator": "", **target}
    target.setdefault("required_contents", {"must_include": ["x"]})
    rules = {"eval_types": ["program_html"], "program_html": [target]}
    return {"kind": "webarena", "eval": rules}


def test_a_page_that_nobody_has_seen_is_no_success():
    wanted = {"exact_match": "None"}
    check = html_check(required_contents=wanted)
    assert asyncio.run(webarena.score(check, stories.story(), None)) == 0.0


def test_what_is_looked_for_when_the_episode_is_over():
    check = html_check(url="http://s/orders", locator="document.title")
    plain = {"kind": "answer", "equals": "x"}
    (look,) = webarena.looks([plain, check])
    assert (look.fact, look.url) == ("webarena:0", "http://s/orders")
    assert "(document.title)" in look.script
    assert [each.url for each in webarena.looks([html_check()])] == [""]
    assert list(webarena.looks([html_check(locator="func:f(__page__)")])) == []


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"url": "func:order_url()"}, "no end_script"),
        ({"url": "__SHOP__/orders"}, "wanted 'last' or http"),
        ({"url": None}, "wanted two texts"),
        ({"locator": "h1"}, "locator='h1'"),
    ],
)
def test_a_target_that_cannot_be_seen_is_told(target, told):
    assert told in "".join(webarena.faults(html_check(**target), False))
    assert not list(webarena.faults(html_check(url="http://s/a"), False))


def test_all_evaluators_must_hold_and_blocked_absorbs():
    rules = answers("exact_match", "it costs 2 eur") | {
        "eval_types": ["string_match", "url_match"],
        "reference_url": "http://elsewhere",
    }
    assert run(rules) == 0.0
    assert webarena.product([-1.0, -1.0]) == -1.0
    assert webarena.product([-1.0, 0.0]) == -1.0
    assert webarena.product([1.0, 0.0]) == 0.0
    assert webarena.product([]) == 1.0


def test_verified_without_its_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "webarena_verified.api", None)
    check = {"kind": "webarena", "mode": "verified", "task_id": 44}
    with pytest.raises(ValueError, match="pip install webarena-verified"):
        asyncio.run(webarena.score(check, stories.story(), None))


# ---- against the packages themselves: pytest -m oracle ------------------------------

WORDS = st.lists(
    st.sampled_from(
        ["0", "1", "10", "$0.00", "a", "A", "milk", ".", ",", "'", '"', ":", "$", "%"]
        + ["0,", "0.", "(0)", "0%", "n/a", "don't", "...", "--", "1,000", "?", "0?"]
    ),
    max_size=6,
).map(" ".join) | st.text(alphabet="01a .,'\"$%:;()?!-", max_size=12)


@pytest.fixture(scope="module")
def upstream():
    """libwebarena's evaluators; its tokenizer without the data that nltk downloads."""
    import os

    names = "SHOPPING SHOPPING_ADMIN REDDIT GITLAB WIKIPEDIA MAP HOMEPAGE".split()
    for name in names:
        os.environ.setdefault(name, f"http://{name.lower()}.test")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it is made of, not of ours
        import nltk
        from webarena.evaluation_harness import evaluators

    evaluators.word_tokenize = nltk.tokenize.NLTKWordTokenizer().tokenize
    return evaluators


@pytest.mark.oracle
@hypothesis.settings(max_examples=2000)
@hypothesis.given(reference=WORDS, answer=WORDS, is_alone=st.booleans())
def test_strings_score_as_upstream(upstream, reference, answer, is_alone):
    oracle = upstream.StringEvaluator
    assert webarena.clean(answer) == oracle.clean_answer(answer)
    answer = oracle.clean_answer(answer)
    assert webarena.must_include(reference, answer, is_alone) == oracle.must_include(
        ref=reference, pred=answer, tokenize=is_alone
    )


@pytest.mark.oracle
@hypothesis.settings(max_examples=500)
@hypothesis.given(kind=st.sampled_from(["exact_match", "must_include"]), answer=WORDS)
def test_answers_score_as_upstream(upstream, tmp_path_factory, kind, answer):
    rules = answers(kind, "a" if kind == "exact_match" else ["0", "a"])
    path = tmp_path_factory.mktemp("task") / "task.json"
    path.write_text(json.dumps({"eval": rules}))
    end = [{"action_type": 0, "answer": answer}]
    assert run(rules, answer=answer) == upstream.StringEvaluator()(end, path)


@pytest.mark.oracle
@hypothesis.settings(max_examples=1000)
@hypothesis.given(
    st.lists(
        st.sampled_from(
            ["http://s/a", "s/a/", "?q=1", "&q=2", "q=", " |OR| ", "#f", "/b"]
        ),
        max_size=6,
    ).map("".join),
    st.sampled_from(
        ["http://s/a", "http://s/a/", "http://s/ab?q=1", "https://s/b?q=2&z=1", ""]
    ),
)
def test_addresses_score_as_upstream(upstream, tmp_path_factory, reference, address):
    import json
    from types import SimpleNamespace

    path = tmp_path_factory.getbasetemp() / "task.json"
    path.write_text(json.dumps({"eval": {"reference_url": reference}}))
    oracle = upstream.URLEvaluator.__call__.__wrapped__
    page = SimpleNamespace(url=address)
    assert webarena.same_url(reference, address) == oracle(
        upstream.URLEvaluator(), [], path, page, None
    )


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ("Milk", {"exact_match": "milk"}),
        ("Milk", {"exact_match": "milk", "must_include": ["tea"]}),
        ("a &amp; b", {"must_include": ["a & b", "A |OR| z"]}),
        ("10", {"must_include": ["0"]}),
        (None, {"exact_match": "None"}),
        (True, {"exact_match": "true"}),
        (7, {"must_include": ["8 |OR| 6"]}),
    ],
)
def test_pages_score_as_upstream(upstream, tmp_path, answer, wanted):
    import json
    from types import SimpleNamespace

    check = html_check(locator="document.x", required_contents=wanted)
    path = tmp_path / "task.json"
    path.write_text(json.dumps(check))
    oracle = upstream.HTMLContentEvaluator.__call__.__wrapped__
    page = SimpleNamespace(url="", evaluate=lambda script: answer)
    story = stories.story(facts={"webarena:0": answer})
    assert asyncio.run(webarena.score(check, story, None)) == oracle(
        upstream.HTMLContentEvaluator(), [], path, page, None
    )


@pytest.mark.oracle
def test_the_verified_package_is_asked():
    check = {"kind": "webarena", "mode": "verified", "task_id": 0}
    request = {"method": "GET", "url": "http://shop.test/admin/", "headers": []}
    entry = {"request": request, "response": {"status": 200, "redirectURL": ""}}
    for product, har, value in (
        ("Quest Lumaflex\u2122 Band", [entry], 1.0),
        ("Sprite Yoga Strap", [entry], 0.0),
        ({"no": ["name"]}, [entry], 0.0),
        ("Quest Lumaflex\u2122 Band", [], None),
    ):
        told = {"task_type": "RETRIEVE", "status": "SUCCESS", "error_details": None}
        answer = json.dumps(told | {"retrieved_data": [product]})
        story = stories.story(answer=answer, facts={"har": har})
        if value is None:  # nothing was recorded: that is no failure of the policy
            with pytest.raises(Failure):
                asyncio.run(webarena.score(check, story, None))
        else:
            assert asyncio.run(webarena.score(check, story, None)) == value
