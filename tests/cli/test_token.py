"""`holdfast token`: keys of the API."""

import json

from tests.cli.shell import Shell


def test_a_key_is_shown_once_and_kept_as_a_digest(either: Shell):
    either.says("migrate", "up")
    done = either.run("token", "create", "ci", "--tenant", "acme", "--role", "viewer")
    key = done.stdout.strip()
    _, id, secret = key.split("_")
    assert len(secret) == 32
    assert secret not in done.stderr
    listed = either.says("token", "ls", "-o", "json")
    assert secret not in listed
    (view,) = json.loads(listed)
    assert (view["id"], view["name"], view["tenant_id"], view["valid"]) == (id, "ci", "acme", True)
    assert view["scopes"] == ["fleet:read", "tasks:read"]


def test_a_key_without_a_name_is_called_like_its_tenant(either: Shell):
    either.says("migrate", "up")
    assert either.says("token", "create", "--tenant", "acme", "--scopes", "tasks:read")
    (view,) = json.loads(either.says("token", "ls", "-o", "json"))
    assert (view["name"], view["tenant_id"]) == ("acme", "acme")


def test_a_key_that_is_taken_back_opens_nothing_more(either: Shell):
    either.says("migrate", "up")
    made = json.loads(
        either.says(
            "token", "create", "x", "--scopes", "tasks:read", "--expires", "1h", "-o", "json"
        )
    )
    id = made["record"]["id"]
    assert either.says("token", "revoke", id) == id
    assert json.loads(either.says("token", "ls", "-o", "json")) == []
    (view,) = json.loads(either.says("token", "ls", "--all", "-o", "json"))
    assert view["revoked_at"]
    assert "revoked" in either.says("token", "ls", "--all")
    assert "before" in either.fails(5, "token", "revoke", id)
    assert "no key has the id" in either.fails(3, "token", "revoke", "nobody")


def test_what_a_key_may_do_must_be_said(shell: Shell):
    shell.says("migrate", "up")
    assert "--role" in shell.fails(2, "token", "create", "x")
    assert "no such scope: all" in shell.fails(2, "token", "create", "x", "--scopes", "all")
    assert shell.fails(2, "token", "create", "x", "--scopes", "admin", "--role", "admin")


def test_keys_make_no_store(shell: Shell):
    assert "there is no store" in shell.fails(4, "token", "create", "x", "--role", "admin")
