"""Wagtail: an editor signs in, renames the home page, publishes it and looks at it."""

import pytest

from tests.apps.conftest import APPS

START = """\
"$0/wagtail" start shop . && "$0/python" manage.py migrate &&
"$0/python" manage.py createsuperuser --noinput --username ed --email ed@example.org &&
exec "$0/python" manage.py runserver --noreload "127.0.0.1:$1"
"""
PASSWORD = "a long pass phrase"
TITLE = "Spring sale – 漢字"


@pytest.mark.apps
async def test_a_page_is_renamed_and_published(workplace, serve, opened, port):
    serve(
        ["sh", "-c", START, APPS / "wagtail" / "bin", port],
        DJANGO_SUPERUSER_PASSWORD=PASSWORD,
    )
    hand = await opened("http://cms.test/admin/login/", "Rename the home page")
    await hand.write("#id_username", "ed")
    await hand.write("#id_password", PASSWORD)
    await hand.click("button[type=submit]")
    assert await hand.facts("() => location.pathname") == "/admin/"
    await hand.do("goto_url", url="http://cms.test/admin/pages/3/edit/")
    await hand.write("#id_title", TITLE)
    await hand.click("footer .w-dropdown-button .w-dropdown__toggle")
    await hand.click("button[name=action-publish]")
    said = await hand.facts("() => document.querySelector('.messages').innerText")
    assert "published" in said
    await hand.do("go_back")
    await hand.do("goto_url", url="http://cms.test/")
    assert await hand.facts("() => document.title.trim()") == TITLE
    await hand.end("published")
