"""ihatemoney: a project with two people is made, a bill entered, the balance read."""

import pytest

from tests.apps.conftest import APPS

SETTINGS = """
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/money.db"
SECRET_KEY = "of a test"
SESSION_COOKIE_SECURE = False
ACTIVATE_DEMO_PROJECT = False
"""
BALANCE = """() => Object.fromEntries(
  [...document.querySelectorAll('tr[id^=bal-member]')].map((row) => [
    row.querySelector('.balance-name').firstChild.data.trim(),
    row.querySelector('.balance-value').innerText.trim()]))"""


@pytest.mark.apps
async def test_a_bill_is_shared(workplace, serve, opened, port):
    settings = workplace / "settings.cfg"
    settings.write_text(SETTINGS.format(folder=workplace))
    serve(
        [APPS / "ihatemoney" / "bin" / "ihatemoney", "run", "--port", port],
        IHATEMONEY_SETTINGS_FILE_PATH=str(settings),
    )
    hand = await opened("http://money.test/", "Share the bill of a dinner")
    await hand.write("#creation-form input[name=name]", "Dinner club")
    await hand.write("#creation-form input[name=password]", "s3cret word")
    await hand.write("#creation-form input[name=contact_email]", "a@example.org")
    await hand.click("#creation-form button[type=submit]")
    for name in ("Zoë", "Bob"):
        await hand.write("#add-member-form input[name=name]", name)
        await hand.do("press_keys", keys=["Enter"])
    await hand.click("#new-bill a")
    await hand.do("wait", seconds=1, may_idle=True)  # faded in, it takes the focus
    await hand.write("#bill-form input[name=date]", "2026-03-05")
    await hand.write("#bill-form input[name=what]", "pizza")
    await hand.write("#bill-form select[name=payer]", "Zoë")
    await hand.write("#bill-form input[name=amount]", "30")
    await hand.click("#bill-form input[name=submit], #bill-form button[name=submit]")
    balance = await hand.facts(BALANCE)
    assert {name: value.strip("+") for name, value in balance.items()} == {
        "Zoë": "15.00",
        "Bob": "-15.00",
    }
    bills = await hand.facts("() => document.querySelector('#bill_table').innerText")
    for said in ("2026-03-05", "pizza", "Everyone"):
        assert said in bills.replace("\u2011", "-")
    await hand.end("Bob owes Zoë 15.00")
