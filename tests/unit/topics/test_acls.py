"""Who may do what with a remote topic: never more than with its upstream topic, and whoever is denied stays denied."""

from __future__ import annotations

import dataclasses

import pytest

from mm2py.flow import ClusterAlias
from mm2py.kafka.admin import CHUNK_MOST, CHUNK_MOST_BYTES, in_chunks
from mm2py.topics.acls import (
    AclLeftOut,
    AclPlan,
    MissingAcls,
    Operation,
    Pattern,
    Permission,
    TopicAcl,
    missing_acls,
    plan_acls,
)
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.names import make_policy

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
A = ClusterAlias("A")


def acl(name: str, operation: int = Operation.READ, permission: int = ALLOW, pattern: int = LITERAL) -> TopicAcl:
    return TopicAcl(name, int(pattern), "User:jane", "*", int(operation), int(permission))


def plan(*acls: TopicAcl, policy: str = "DefaultReplicationPolicy", separator: str | None = None) -> AclPlan:
    return plan_acls(
        acls,
        policy=make_policy(policy, source_alias=A, separator=separator, internal_separator_enabled=None),
        source_alias=A,
        replicates=lambda name: name != "secret",
        topics=["orders", "orders-eu", "heartbeats", "bills"],
        kept=["orders", "once"],
    )


@pytest.mark.parametrize(
    ("upstream", "remote"),
    [
        (acl("orders"), acl("A.orders")),
        (acl("orders", Operation.ALL), acl("A.orders", Operation.READ)),
        (acl("orders", Operation.WRITE), None),
        (acl("orders", Operation.WRITE, DENY), acl("A.orders", Operation.WRITE, DENY)),
        (acl("orders", Operation.ALL, DENY), acl("A.orders", Operation.ALL, DENY)),
        (acl("orders", Operation.ALTER), acl("A.orders", Operation.ALTER)),
        (acl("orders", 99, DENY), acl("A.orders", 99, DENY)),
        (acl("not-there-yet"), None),
        (acl("once"), None),
        (acl("not-there-yet", permission=DENY), acl("A.not-there-yet", permission=DENY)),
        (acl("orders", permission=1), acl("A.orders", permission=1)),
        (acl("not-there-yet", permission=1), None),
        (acl("secret"), None),
        (acl("secret", Operation.ALL, DENY), None),
        (acl("*", Operation.READ, DENY), acl("A.", Operation.READ, DENY, PREFIXED)),
        (acl("ord", Operation.READ, DENY, PREFIXED), acl("A.ord", Operation.READ, DENY, PREFIXED)),
    ],
)
def test_each_acl_of_the_source_becomes_one_of_the_copy_or_none(upstream: TopicAcl, remote: TopicAcl | None) -> None:
    assert plan(upstream).wanted == (() if remote is None else (remote,))
    assert plan(upstream).left_out == ()


@pytest.mark.parametrize(
    ("upstream", "why"),
    [
        (acl("*"), AclLeftOut.ALLOW_ANY),
        (acl("*", Operation.ALL), AclLeftOut.ALLOW_ANY),
        (acl("ord", pattern=PREFIXED), AclLeftOut.ALLOW_PREFIXED),
        (acl("ord", permission=1, pattern=PREFIXED), AclLeftOut.ALLOW_PREFIXED),
        (acl("ord", permission=DENY, pattern=7), AclLeftOut.UNKNOWN_PATTERN),
    ],
)
@pytest.mark.parametrize("policy", ["DefaultReplicationPolicy", "IdentityReplicationPolicy"])
def test_what_grants_on_many_topics_at_once_is_left_out_and_named(
    upstream: TopicAcl, why: AclLeftOut, policy: str
) -> None:
    assert plan(upstream, policy=policy) == AclPlan((), ((upstream, why),))


@pytest.mark.parametrize(
    "upstream",
    [
        acl("o r, ü", permission=DENY),
        acl("x" * 248, permission=DENY),
        acl("x" * 32_766, permission=DENY),
        acl("x" * 248, permission=DENY, pattern=PREFIXED),
        acl("*", permission=DENY, pattern=PREFIXED),
    ],
)
def test_what_no_remote_topic_can_be_called_is_left_out_and_named(upstream: TopicAcl) -> None:
    """A name of 32,766 bytes grew by ``A.``, and no broker took a request any more that had it in."""
    assert plan(upstream) == AclPlan((), ((upstream, AclLeftOut.NO_TOPIC_NAME),))
    assert plan(dataclasses.replace(upstream, permission=ALLOW)).wanted == ()
    longest = acl("x" * 247, permission=DENY, pattern=PREFIXED)
    assert [len(one.name) for one in plan(longest).wanted] == [249]


def test_a_right_to_write_to_many_topics_is_not_even_named() -> None:
    assert plan(acl("*", Operation.WRITE), acl("o", Operation.WRITE, pattern=PREFIXED)) == AclPlan((), ())


def test_under_the_identity_policy_a_denial_of_many_topics_spares_topics_that_are_no_copies() -> None:
    everything = plan(acl("*", permission=DENY), policy="IdentityReplicationPolicy").wanted
    assert [one.name for one in everything] == ["bills", "A.heartbeats", "once", "orders", "orders-eu"]
    assert {(one.pattern, one.permission) for one in everything} == {(LITERAL, DENY)}
    some = plan(acl("ord", permission=DENY, pattern=PREFIXED), policy="IdentityReplicationPolicy").wanted
    assert [one.name for one in some] == ["orders", "orders-eu"]


def test_another_separator_counts_in_prefixes_as_well() -> None:
    assert [one.name for one in plan(acl("*", permission=DENY), acl("bills"), separator="__").wanted] == [
        "A__",
        "A__bills",
    ]


def test_two_acls_that_become_one_are_wanted_once() -> None:
    assert plan(acl("orders"), acl("orders", Operation.ALL)).wanted == (acl("A.orders"),)


def test_where_the_filter_finds_no_answer_rights_stay_behind_and_denials_do_not() -> None:
    def slow(name: str) -> bool:
        raise PatternTooSlow("topics", ["(a|a)+"], name)

    found = plan_acls(
        [acl("orders"), acl("orders", permission=DENY)],
        policy=make_policy("DefaultReplicationPolicy", source_alias=A, separator=None, internal_separator_enabled=None),
        source_alias=A,
        replicates=slow,
        topics=["orders"],
        kept=[],
    )
    assert found.wanted == (acl("A.orders", permission=DENY),)


def test_principals_and_hosts_are_kept_to_the_letter() -> None:
    for principal in ("User:CN=Jane Doe, OU=R&D, O=Wörks", "User:", "Group:a:b", "User:\u202eevil", "User:*"):
        odd = dataclasses.replace(acl("orders"), principal=principal, host="fe80::1")
        (made,) = plan(odd).wanted
        assert (made.principal, made.host) == (principal, "fe80::1")


def test_an_acl_reads_as_a_sentence_with_its_codes_where_they_have_no_name() -> None:
    assert str(acl("A.", Operation.DESCRIBE, DENY, PREFIXED)) == "DENY DESCRIBE on PREFIXED A. for User:jane from *"
    assert str(acl("x", 99)) == "ALLOW 99 on LITERAL x for User:jane from *"


def test_many_acls_are_cut_into_requests_by_number_and_by_size() -> None:
    many = [acl(f"topic-{number}") for number in range(10_000)]
    chunks = list(in_chunks(many))
    assert [one for chunk in chunks for one in chunk] == many
    assert max(map(len, chunks)) == CHUNK_MOST
    wide = [dataclasses.replace(one, principal="User:" + "ü" * 10_000) for one in many[:50]]
    chunks = list(in_chunks(wide))
    assert [one for chunk in chunks for one in chunk] == wide
    assert max(len(chunk) for chunk in chunks) * 20_000 <= CHUNK_MOST_BYTES
    monster = [dataclasses.replace(acl("x"), name="x" * 2 * CHUNK_MOST_BYTES), acl("y")]
    assert [len(chunk) for chunk in in_chunks(monster)] == [1, 1]
    assert list(in_chunks([])) == []


def test_what_is_missing_is_told_denials_apart_from_rights_and_in_order() -> None:
    there, eve = acl("A.bills"), acl("A.orders", permission=DENY)
    wanted = [acl("A.orders"), there, acl("A.", permission=DENY, pattern=PREFIXED), eve, acl("A.bills", 8)]
    found = missing_acls(wanted, [there, acl("own")], remotes={"A.orders", "A.bills"}, most=100)
    assert found == MissingAcls(
        denials=[acl("A.", permission=DENY, pattern=PREFIXED), eve],
        grants=[acl("A.bills", 8), acl("A.orders")],
        beyond=[],
        in_all=5,
    )


def test_rights_beyond_the_most_that_a_flow_may_have_are_not_created_and_denials_are() -> None:
    grants = [acl(f"A.t{number}") for number in range(5)]
    denial = acl("A.t0", permission=DENY)
    own = [dataclasses.replace(acl("A.t0"), principal=f"User:own{number}") for number in range(2)]
    remotes = {one.name for one in grants}

    def found(most: int) -> MissingAcls:
        return missing_acls([*grants, denial], [grants[0], *own, acl("own")], remotes=remotes, most=most)

    for most in (8, 100):
        assert (found(most).grants, found(most).beyond, found(most).in_all) == (grants[1:], [], 8)
    assert (found(6).denials, found(6).grants, found(6).beyond) == ([denial], grants[1:3], grants[3:])
    for most in (1, 3, 4):
        assert (found(most).denials, found(most).grants, found(most).beyond) == ([denial], [], grants[1:])
